//! Everything at once: waits, cancels, breaks, returns and goodbyes on a few keys, and a checker
//! that sees every hold.

use crate::common::{
    LONG_MS, Peer, acquire, cancel, granted, hello_for, reentrant, release, renew, start, until,
};
use crate::random::Random;
use protocol::{Reply, Request};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

const KEYS: usize = 3;
const THREADS: usize = 8;
const STEPS: usize = 500;

/// What the clients know of one key. A client that hears of a grant writes its fence down, and
/// takes it off before it lets go: what lies between is a hold beyond doubt.
#[derive(Default)]
struct Watched {
    held_under: AtomicU64,
    last_fence: AtomicU64,
}

impl Watched {
    fn begin(&self, fence: u64) {
        let other = self.held_under.swap(fence, Ordering::AcqRel);
        assert_eq!(other, 0, "granted under {fence} while held under {other}");
        let last = self.last_fence.swap(fence, Ordering::AcqRel);
        assert!(fence > last, "fence {fence} came after {last}");
    }

    fn end(&self, fence: u64) {
        let held = self.held_under.swap(0, Ordering::AcqRel);
        assert_eq!(held, fence, "another client got in");
    }
}

struct Client<'a> {
    address: SocketAddr,
    random: Random,
    watched: &'a [Watched; KEYS],
    /// Two connections of one session.
    main: Peer,
    side: Peer,
    grants: u64,
}

impl<'a> Client<'a> {
    fn new(address: SocketAddr, random: Random, watched: &'a [Watched; KEYS]) -> Self {
        let main = Peer::open(address, hello_for("stress", LONG_MS));
        let side = main.join("stress");
        Client {
            address,
            random,
            watched,
            main,
            side,
            grants: 0,
        }
    }

    fn step(&mut self) {
        let place = self.random.below(KEYS);
        let key = format!("stress/{place}");
        let watched = &self.watched[place];
        match self.random.below(8) {
            // Waits, renews, enters once more, and gives back on either connection.
            0 | 1 => {
                let fence = self.main.ask(&acquire(&key, LONG_MS, LONG_MS), granted);
                self.grants += 1;
                watched.begin(fence);
                self.side.ask(&renew(&key, fence, LONG_MS), |reply| {
                    assert!(matches!(reply, Reply::Renewed { .. }), "{reply:?}")
                });
                if self.random.below(2) == 0 {
                    assert_eq!(self.side.ask(&reentrant(&key, LONG_MS), granted), fence);
                    assert!(self.main.release(&key, fence));
                }
                watched.end(fence);
                assert!(self.side.release(&key, fence));
            }
            // Does not wait.
            2 => {
                let outcome = self
                    .main
                    .ask(&acquire(&key, LONG_MS, 0), |reply| match reply {
                        Reply::Granted { fence, .. } => Some(fence.get()),
                        Reply::Refused(_) => None,
                        other => panic!("neither granted nor refused: {other:?}"),
                    });
                if let Some(fence) = outcome {
                    self.grants += 1;
                    watched.begin(fence);
                    watched.end(fence);
                    assert!(self.main.release(&key, fence));
                }
            }
            // Waits and thinks better of it.
            3 => {
                let waiting = self.main.send(&acquire(&key, LONG_MS, LONG_MS));
                let cancelling = self.main.send(&cancel(waiting));
                let fence = self.main.reply(waiting, |reply| match reply {
                    Reply::Granted { fence, .. } => Some(fence.get()),
                    Reply::Cancelled => None,
                    other => panic!("neither granted nor cancelled: {other:?}"),
                });
                self.main.reply(cancelling, |reply| match fence {
                    Some(_) => assert_eq!(reply, Reply::NotWaiting),
                    None => assert_eq!(reply, Reply::Cancelled),
                });
                if let Some(fence) = fence {
                    self.grants += 1;
                    watched.begin(fence);
                    watched.end(fence);
                    assert!(self.main.release(&key, fence));
                }
            }
            // Breaks while it asks, comes back, asks again; and the same with the release.
            4 | 5 => {
                let request = acquire(&key, LONG_MS, LONG_MS);
                let id = self.main.send(&request);
                if self.random.below(2) == 0 {
                    self.main.ping();
                }
                self.come_back();
                self.main.send_as(id, &request, true);
                let fence = self.main.reply(id, granted);
                self.grants += 1;
                watched.begin(fence);
                let request = release(&key, fence);
                watched.end(fence);
                let id = self.main.send(&request);
                self.come_back();
                self.main.send_as(id, &request, true);
                self.main.reply(id, |reply| {
                    assert_eq!(reply, Reply::Released { remaining_count: 0 })
                });
            }
            // As before, but one connection breaks alone, and the other one stays.
            6 => {
                let request = acquire(&key, LONG_MS, LONG_MS);
                let id = self.main.send(&request);
                self.main = self.side.join("stress");
                self.main.send_as(id, &request, true);
                let fence = self.main.reply(id, granted);
                self.grants += 1;
                watched.begin(fence);
                let request = release(&key, fence);
                watched.end(fence);
                let id = self.main.send(&request);
                self.main = self.side.join("stress");
                self.main.send_as(id, &request, true);
                self.main.reply(id, |reply| {
                    assert_eq!(reply, Reply::Released { remaining_count: 0 })
                });
                self.skip_ids();
            }
            // Leaves for good with a lock in its hands and a wait in line.
            _ => {
                let fence = self.main.ask(&acquire(&key, LONG_MS, LONG_MS), granted);
                self.grants += 1;
                watched.begin(fence);
                self.side.send(&acquire(&key, LONG_MS, LONG_MS));
                watched.end(fence);
                self.main
                    .ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
                self.main = Peer::open(self.address, hello_for("stress", LONG_MS));
                self.side = self.main.join("stress");
            }
        }
    }

    /// Ids rise over both connections, so that none comes twice.
    fn skip_ids(&mut self) {
        let (main, side) = (self.main.next_id(), self.side.next_id());
        self.side.start_ids_at(main.max(side) + 1_000_000);
    }

    /// Both connections break, and both are there again.
    fn come_back(&mut self) {
        let session = self.main.session.expect("a session");
        let next_id = self.side.next_id().max(self.main.next_id()) + 10;
        // The old ones are closed by the end of this, or by the server when it hears of the new
        // one, whichever is first.
        self.main = Peer::resume(self.address, "stress", session, next_id);
        assert!(self.main.is_resumed);
        self.side = self.main.join("stress");
    }
}

#[test]
fn no_two_hold_a_key_and_its_fences_rise_whatever_clients_do() {
    let mut random = Random::seeded("no_two_hold_a_key_and_its_fences_rise_whatever_clients_do");
    let server = start();
    let address = server.local_addr();
    let watched: [Watched; KEYS] = Default::default();
    let grants: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (random, watched) = (random.fork(), &watched);
                scope.spawn(move || {
                    let mut client = Client::new(address, random, watched);
                    for _ in 0..STEPS {
                        client.step();
                    }
                    client
                        .main
                        .ask(&Request::Goodbye, |reply| assert_eq!(reply, Reply::Bye));
                    client.grants
                })
            })
            .collect();
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.sum()
    });
    let mut observer = Peer::connect(address, "observer");
    until("nothing is left behind", || {
        let stats = observer.stats();
        stats["held"] == 0
            && stats["waiters"] == 0
            && stats["sessions"] == 1
            && stats["connections"] == 1
    });
    for place in 0..KEYS {
        assert_eq!(observer.query(&format!("stress/{place}")), (vec![], 0));
    }
    let stats = observer.stats();
    // Each of them was counted, and those that found no connection besides.
    assert!(stats["holds_begun_total"] >= grants);
    println!(
        "{grants} grants, {} given back because their connection was gone, {} repeated requests answered from memory",
        stats["grants_returned_total"], stats["repeats_answered_total"]
    );
}
