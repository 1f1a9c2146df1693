//! A link between two servers that can be made to stand still: a proxy on loopback. What goes in
//! while it stands still does not come out, and is gone when the link is. As a network does it, and
//! unlike SIGSTOP, which leaves the bytes with the stopped process to be read later.

use crate::load::peers::child::free_address;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// How often a direction looks whether it may go on, and how long it waits for bytes.
const LOOK: Duration = Duration::from_millis(5);

/// What the link does. `Relaxed` is enough everywhere: the state is all there is to see.
const FORWARDS: u8 = 0;
const STANDS_STILL: u8 = 1;
const IS_OVER: u8 = 2;

/// A running link. Dropping it ends it.
pub(crate) struct Link {
    /// Whatever connects here is connected to the other end.
    pub(crate) address: SocketAddr,
    state: Arc<AtomicU8>,
}

impl Link {
    /// A link to `target`.
    pub(crate) fn start(target: SocketAddr) -> Result<Link, String> {
        let listener = free_address()
            .and_then(TcpListener::bind)
            .map_err(|error| format!("a link cannot listen: {error}"))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let state = Arc::new(AtomicU8::new(FORWARDS));
        let seen = Arc::clone(&state);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let is_over = seen.load(Ordering::Relaxed) == IS_OVER;
                let (false, Ok(near)) = (is_over, near) else {
                    return;
                };
                // A target that is gone closes what was just accepted.
                if let Ok(far) = TcpStream::connect(target) {
                    join(&near, &far, &seen);
                    join(&far, &near, &seen);
                }
            }
        });
        Ok(Link { address, state })
    }

    /// From now on nothing comes out of it.
    pub(crate) fn stand_still(&self) {
        self.state.store(STANDS_STILL, Ordering::Relaxed);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.store(IS_OVER, Ordering::Relaxed);
        // Wakes the thread that accepts, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

/// Forwards one direction from a thread of its own, until an end is closed or the link is over.
fn join(from: &TcpStream, to: &TcpStream, state: &Arc<AtomicU8>) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else {
        return;
    };
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        let _ = from.set_read_timeout(Some(LOOK));
        let mut bytes = [0; 16 * 1024];
        loop {
            let read = match from.read(&mut bytes) {
                Ok(read) => read,
                Err(error) if is_timeout(&error) => {
                    if state.load(Ordering::Relaxed) == IS_OVER {
                        break;
                    }
                    continue;
                }
                Err(_) => 0,
            };
            // Not even that an end was closed gets through.
            while state.load(Ordering::Relaxed) == STANDS_STILL {
                std::thread::sleep(LOOK);
            }
            let is_over = state.load(Ordering::Relaxed) == IS_OVER;
            if is_over || read == 0 || to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_both_ways_until_the_link_stands_still() {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link::start(target.local_addr().unwrap()).unwrap();
        let mut near = TcpStream::connect(link.address).unwrap();
        let (mut far, _) = target.accept().unwrap();
        let mut byte = [0; 1];
        near.write_all(b"a").unwrap();
        far.read_exact(&mut byte).unwrap();
        far.write_all(b"b").unwrap();
        near.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"b");

        link.stand_still();
        far.write_all(b"c").unwrap();
        drop(far);
        near.set_read_timeout(Some(LOOK * 20)).unwrap();
        assert!(is_timeout(&near.read(&mut byte).unwrap_err()));
        // What was under way does not come out at the end either.
        drop(link);
        near.set_read_timeout(None).unwrap();
        assert_eq!(near.read(&mut byte).unwrap_or(0), 0);
    }
}
