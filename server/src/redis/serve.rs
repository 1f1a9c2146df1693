//! One client of the Redis port, from its first byte to its end.

use super::client::Client;
use super::port::Port;
use super::talk::Talk;
use super::voice::RedisVoice;
use crate::conn::connection::Connection;
use crate::conn::places::Stranger;
use crate::conn::socket::Socket;
use crate::core::Core;
use crate::serve::conversation;
use crate::session::actor::Actor;
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
    // A certificate stands for a password.
    let names = socket.certificate_names();
    let by_certificate = match names.is_empty() {
        true => None,
        false => core.shared.rights.of_certificate(&names),
    };
    let is_authenticated = by_certificate.is_some() || !core.shared.rights.is_required();
    let connection = core.insert(|id| {
        let session = port.space.session.clone();
        // The session of all Redis clients lasts as long as the server.
        let seat = core.seat(session.id);
        seat.borrow_mut().stop_remembering();
        let actor = Actor {
            session,
            own_name: None,
            address: address.as_str().into(),
            token_name: None,
        };
        let rights = &core.shared.rights;
        let entitlement = by_certificate.unwrap_or_else(|| rights.of_stranger().clone());
        let entitled = (&**rights, entitlement);
        Connection::new(id, actor, seat, voice.clone(), entitled)
    });
    let card = port.enter(address.clone());
    let client = Client::new(card, voice, is_authenticated);
    let mut talk = Talk::new(core.clone(), port, connection.clone(), client, stranger);
    let unread = BytesMut::new();
    conversation::serve(&core, &connection, &mut talk, socket, &address, unread).await;
}
