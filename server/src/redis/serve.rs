//! One client of the Redis port, from its first byte to its end.

use super::talk::Talk;
use super::voice::RedisVoice;
use crate::conn::connection::Connection;
use crate::conn::conversation;
use crate::conn::places::Stranger;
use crate::conn::socket::Socket;
use crate::core::Core;
use bytes::BytesMut;
use std::rc::Rc;

/// Serves one accepted socket.
pub(crate) async fn serve(core: Rc<Core>, socket: Socket, address: String, stranger: Stranger) {
    let shared = core.shared.clone();
    let Some(port) = shared.redis.get() else {
        return;
    };
    let voice = Rc::new(RedisVoice::new());
    let connection = core.insert(|id| {
        let session = port.session.clone();
        // The session of all Redis clients lasts as long as the server.
        let seat = core.seat(session.id);
        seat.borrow_mut().stop_remembering();
        Connection::new(id, session, seat, voice.clone())
    });
    let card = port.enter(address.clone());
    let mut talk = Talk::new(core.clone(), connection.clone(), voice, card, stranger);
    let unread = BytesMut::new();
    conversation::serve(&core, &connection, &mut talk, socket, &address, unread).await;
}
