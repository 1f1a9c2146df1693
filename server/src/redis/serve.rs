//! One client of the Redis port, from its first byte to its end.

use super::client::Client;
use super::port::Port;
use super::talk::Talk;
use super::voice::RedisVoice;
use crate::conn::connection::Connection;
use crate::conn::conversation;
use crate::conn::places::Stranger;
use crate::conn::socket::Socket;
use crate::core::Core;
use bytes::BytesMut;
use std::rc::Rc;
use std::sync::Arc;

/// Serves one accepted socket.
pub(crate) async fn serve(
    core: Rc<Core>,
    port: Arc<Port>,
    socket: Socket,
    address: String,
    stranger: Stranger,
) {
    let voice = Rc::new(RedisVoice::new());
    let connection = core.insert(|id| {
        let session = port.session.clone();
        // The session of all Redis clients lasts as long as the server.
        let seat = core.seat(session.id);
        seat.borrow_mut().stop_remembering();
        Connection::new(id, session, seat, voice.clone())
    });
    let card = port.enter(address.clone());
    let client = Client::new(card, voice, !core.shared.tokens.is_required());
    let mut talk = Talk::new(core.clone(), port, connection.clone(), client, stranger);
    let unread = BytesMut::new();
    conversation::serve(&core, &connection, &mut talk, socket, &address, unread).await;
}
