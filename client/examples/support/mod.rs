//! What all examples need: a lock server, and clients of it.

use fencepost::{Client, ConnectError};
use fencepost_server::Server;
use std::error::Error;

/// A lock server: the one at the address on the command line, or one of our own.
pub(crate) struct Locks {
    address: String,
    _embedded: Option<Server>,
}

impl Locks {
    pub(crate) fn from_args() -> Result<Locks, Box<dyn Error>> {
        match std::env::args().nth(1) {
            None => Self::embedded(),
            Some(address) => Ok(Locks {
                address,
                _embedded: None,
            }),
        }
    }

    pub(crate) fn embedded() -> Result<Locks, Box<dyn Error>> {
        let server = Server::builder()
            .listen("127.0.0.1:0".parse()?)
            .http_off()
            .start()?;
        Ok(Locks {
            address: server.local_addr().to_string(),
            _embedded: Some(server),
        })
    }

    /// A client with a session of its own, as another process would have.
    pub(crate) async fn client(&self, name: &str) -> Result<Client, ConnectError> {
        let address = self.address.as_str();
        Client::builder()
            .address(address)
            .name(name)
            .connect()
            .await
    }
}
