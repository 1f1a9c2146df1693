//! Which peers may have a connection.
//!
//! A peer is a *stranger* until it has introduced itself: a native client by a `Hello` that was
//! accepted, a client of Redis by its first command, or where tokens are needed by showing one.
//! From then on it has one of `connections_max` places. Strangers have no place. Each core bears
//! some of them, [`strangers_max`], each for the hello timeout at most; when there are more, the
//! oldest one gives way. So peers that say nothing keep no client out.
//!
//! A few places more are kept for operators, [`OPERATOR_PLACES`]: for the command line of this
//! program, whose client name is [`OPERATOR_NAME`], on the server's own machine.

use crate::config::Config;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many strangers one core bears at most. Enough for a load generator that opens all its
/// connections before it says anything.
const STRANGERS_MAX: usize = 2_048;

/// The least that a core bears, however few places there are.
const STRANGERS_MIN: usize = 16;

/// How many strangers one core bears, those that are being told why they are not let in among them:
/// as many as there are places, within bounds.
pub(crate) fn strangers_max(config: &Config) -> usize {
    (config.connections_max as usize).clamp(STRANGERS_MIN, STRANGERS_MAX)
}

/// How many connections beyond `connections_max` operators may have.
pub(crate) const OPERATOR_PLACES: usize = 4;

/// The name by which the command line of this program introduces itself.
pub(crate) const OPERATOR_NAME: &str = "fencepost";

/// The places of all cores.
pub(crate) struct Places {
    taken: AtomicUsize,
    places_max: usize,
}

/// A connection's place. Given back when it is dropped, so also by a connection whose task panics.
pub(crate) struct Place(Arc<Places>);

impl Places {
    pub(crate) fn new(places_max: usize) -> Arc<Self> {
        Arc::new(Places {
            taken: AtomicUsize::new(0),
            places_max,
        })
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes one. `None`: there is none.
    pub(crate) fn take(self: &Arc<Self>, is_operator: bool) -> Option<Place> {
        let max = match is_operator {
            true => self.places_max + OPERATOR_PLACES,
            false => self.places_max,
        };
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        let taken = (self.taken).fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more);
        taken.ok().map(|_| Place(self.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Peers in the order in which they came. When there are too many, the oldest gives way.
pub(crate) struct Line {
    peers: Mutex<Peers>,
    peers_max: usize,
}

#[derive(Default)]
struct Peers {
    line: VecDeque<(u64, Arc<Notify>)>,
    last_number: u64,
}

/// A peer that stands in line. It leaves when this is dropped.
pub(crate) struct InLine {
    line: Arc<Line>,
    number: u64,
    gives_way: Arc<Notify>,
}

impl Line {
    pub(crate) fn new(peers_max: usize) -> Arc<Self> {
        Arc::new(Line {
            peers: Mutex::default(),
            peers_max,
        })
    }

    /// Puts a newcomer in line. `true`: the oldest is told to give way for it.
    pub(crate) fn enter(self: &Arc<Self>) -> (InLine, bool) {
        let gives_way = Arc::new(Notify::new());
        let mut peers = self.peers.lock();
        peers.last_number += 1;
        let number = peers.last_number;
        let oldest = match peers.line.len() < self.peers_max {
            true => None,
            false => peers.line.pop_front(),
        };
        peers.line.push_back((number, gives_way.clone()));
        drop(peers);
        if let Some((_, oldest)) = &oldest {
            oldest.notify_one();
        }
        let line = self.clone();
        let newcomer = InLine {
            line,
            number,
            gives_way,
        };
        (newcomer, oldest.is_some())
    }
}

impl InLine {
    /// Waits until it has to give way to a newer one. May be dropped half-way.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

/// A peer that has not introduced itself.
pub(crate) struct Stranger {
    in_line: InLine,
    /// When it must have done so.
    due: Instant,
}

/// Why a stranger has to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Overdue {
    /// There are too many strangers, and it was the oldest.
    GaveWay,
    /// Its time is up.
    TooLate,
}

impl Stranger {
    pub(crate) fn new(in_line: InLine, hello_timeout: Duration) -> Self {
        let due = Instant::now() + hello_timeout;
        Stranger { in_line, due }
    }

    /// Waits until it has to give way to a newer one. May be dropped half-way.
    pub(crate) async fn gives_way(&self) {
        self.in_line.gives_way().await;
    }

    /// Waits until its time is up. May be dropped half-way.
    pub(crate) async fn is_late(&self) {
        tokio::time::sleep_until(self.due).await;
    }

    /// Waits until it has to go. May be dropped half-way.
    pub(crate) async fn must_go(&self) -> Overdue {
        tokio::select! {
            biased;
            () = self.gives_way() => Overdue::GaveWay,
            () = self.is_late() => Overdue::TooLate,
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let line = &mut self.line.peers.lock().line;
        // Numbers rise along the line. One that was told to give way is not there any more.
        if let Ok(position) = line.binary_search_by_key(&self.number, |(number, _)| *number) {
            line.remove(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_however_its_connection_ends() {
        let places = Places::new(1);
        let connection = std::panic::catch_unwind({
            let places = places.clone();
            move || {
                let _place = places.take(false).expect("there is one");
                panic!("asked for by a test");
            }
        });
        assert!(connection.is_err());
        assert_eq!(places.taken(), 0);
        assert!(places.take(false).is_some());
    }

    #[test]
    fn operators_have_a_few_places_more_and_no_others() {
        let places = Places::new(2);
        let _others = [places.take(false).unwrap(), places.take(false).unwrap()];
        assert!(places.take(false).is_none());
        let operators: Vec<_> = (0..OPERATOR_PLACES).map(|_| places.take(true)).collect();
        assert!(operators.iter().all(Option::is_some));
        assert!(places.take(true).is_none());
        assert_eq!(places.taken(), 2 + OPERATOR_PLACES);
    }

    #[test]
    fn the_oldest_gives_way_and_peers_that_left_do_not_count() {
        let line = Line::new(3);
        let enter = || line.enter();
        let (first, second, third) = (enter(), enter(), enter());
        assert!(!first.1 && !second.1 && !third.1);
        drop(first);
        let fourth = enter();
        assert!(!fourth.1, "one had left");
        let fifth = enter();
        assert!(fifth.1);
        let numbers: Vec<u64> = line.peers.lock().line.iter().map(|peer| peer.0).collect();
        assert_eq!(numbers, [third.0.number, fourth.0.number, fifth.0.number]);
        drop(second);
        assert_eq!(line.peers.lock().line.len(), 3);
    }
}
