//! One native client, from its hello to its end.

use super::dispatch::Batch;
use super::opening;
use crate::conn::places::Stranger;
use crate::core::Core;
use crate::serve::{conversation, entrance};
use bytes::BytesMut;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::net::TcpStream;

/// Serves one accepted socket.
pub(crate) async fn serve(
    core: Rc<Core>,
    stream: TcpStream,
    address: SocketAddr,
    stranger: Stranger,
) {
    let certificates = core.shared.certificates_of(|ports| ports.native);
    let entered = entrance::enter(&core, stream, address, &stranger, certificates).await;
    let Some(mut socket) = entered else {
        return;
    };
    let mut unread = BytesMut::new();
    let opened = opening::open(&core, &mut socket, address, &mut unread, stranger).await;
    let Some(opened) = opened else {
        return;
    };
    let connection = opened.connection;
    let mut batch = Batch::new(core.clone(), connection.clone(), opened.voice);
    conversation::serve(&core, &connection, &mut batch, socket, &address, unread).await;
    // The place is kept until the socket is closed.
    drop(opened.place);
}
