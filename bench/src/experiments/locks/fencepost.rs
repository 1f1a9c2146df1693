//! Fencepost, through its client.

use super::{Lock, Wish};
use fencepost::LockError;
use fencepost::blocking::{Client, Guard};
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) struct Fencepost {
    client: Client,
    guard: Option<Guard>,
}

impl Fencepost {
    pub(crate) fn connect(
        address: SocketAddr,
        name: &str,
        session_ttl: Duration,
    ) -> Result<Self, String> {
        let client = fencepost::Client::builder()
            .address(address.to_string())
            .name(name)
            .session_ttl(session_ttl)
            .connect_blocking()
            .map_err(|error| error.to_string())?;
        Ok(Fencepost {
            client,
            guard: None,
        })
    }
}

impl Lock for Fencepost {
    fn acquire(&mut self, wish: &Wish) -> Result<Option<u64>, String> {
        let mut request = self.client.lock(&wish.key).ttl(wish.ttl).wait(wish.wait);
        if !wish.is_renewed {
            request = request.no_renew();
        }
        match self.client.acquire(request) {
            Ok(guard) => {
                let fence = guard.fence().get();
                self.guard = Some(guard);
                Ok(Some(fence))
            }
            Err(LockError::NotAcquired(_)) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn believes(&self) -> Option<bool> {
        self.guard.as_ref().map(Guard::is_valid)
    }

    fn release(&mut self) -> Result<bool, String> {
        let Some(guard) = self.guard.take() else {
            return Ok(false);
        };
        let released = guard.release().map_err(|error| error.to_string())?;
        Ok(matches!(released, fencepost::Release::Released))
    }
}
