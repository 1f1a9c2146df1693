//! One native client, from its hello to its end.

use super::dispatch::Batch;
use super::opening;
use crate::conn::conversation;
use crate::conn::places::Stranger;
use crate::conn::socket::Socket;
use crate::core::Core;
use bytes::BytesMut;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::net::TcpStream;

/// Serves one accepted socket.
pub(crate) async fn serve(
    core: Rc<Core>,
    mut stream: TcpStream,
    address: SocketAddr,
    stranger: Stranger,
) {
    let mut unread = BytesMut::new();
    let opened = opening::open(&core, &mut stream, address, &mut unread, stranger).await;
    let Some(opened) = opened else {
        return;
    };
    let connection = opened.connection;
    let mut batch = Batch::new(core.clone(), connection.clone(), opened.voice);
    let socket = Socket::Tcp(stream);
    conversation::serve(&core, &connection, &mut batch, socket, &address, unread).await;
    // The place is kept until the socket is closed.
    drop(opened.place);
}
