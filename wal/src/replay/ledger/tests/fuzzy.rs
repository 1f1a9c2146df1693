//! Images whose parts are of later moments than their heads: the node that reads one applies the
//! entries in between once more, and must come to what the others have.

use super::*;

#[derive(Clone, Copy)]
enum Step<'a> {
    Is(Record<'a>),
    /// Another leader.
    Reign,
    TurnsEnd,
}

use Step::{Is, Reign, TurnsEnd};

/// Applies a step as a node does, which clears out whenever turns have ended.
fn take_step(ledger: &mut Ledger, number: usize, step: Step<'_>) {
    ledger.reach(100 * number as u64);
    match step {
        Is(record) => ledger.apply(&record).unwrap(),
        Reign => ledger.begin_reign(),
        TurnsEnd => end_turns(ledger),
    }
}

fn take_steps(ledger: &mut Ledger, steps: &[(usize, Step<'_>)]) {
    for &(number, step) in steps {
        take_step(ledger, number, step);
    }
}

/// Makes an image for each two moments of a history from `first` on: of the head, and of the parts.
/// From the moment of the parts on, its reader must equal a node that applied everything once.
fn every_image_comes_to_the_same_end(first: usize, history: &[Step<'_>]) {
    let history: Vec<_> = (0..).zip(history.iter().copied()).collect();
    for begin in first..history.len() {
        for shown in begin..=history.len() {
            let mut whole = Ledger::default();
            take_steps(&mut whole, &history[..begin]);
            let mut bytes = Vec::new();
            let under_way = whole.put_image_head(&mut bytes);
            take_steps(&mut whole, &history[begin..shown]);
            for part in 0..PARTS {
                whole.put_image_part(&under_way, part, &mut bytes);
            }
            drop(under_way);
            let mut read = Ledger::from_image(&bytes).unwrap();
            take_steps(&mut read, &history[begin..shown]);
            assert_eq!(hashes(&mut read), hashes(&mut whole), "{begin} {shown}");
            for &(number, step) in &history[shown..] {
                take_step(&mut read, number, step);
                take_step(&mut whole, number, step);
                let (read, whole) = (hashes(&mut read), hashes(&mut whole));
                assert_eq!(read, whole, "{begin} {shown} at {number}");
            }
        }
    }
}

#[test]
fn grants_and_ends_in_their_order() {
    every_image_comes_to_the_same_end(
        1,
        &[
            Reign,
            Is(ceiling(100)),
            Is(session(7, 5_000)),
            Is(lease(b"a", 3, 7, 4_000)),
            Is(released(b"a", 3)),
            Is(lease(b"a", 5, 7, 4_000)),
            Is(lease(b"b", 6, 7, 4_000)),
            Is(released(b"b", 6)),
            Is(session(8, 6_000)),
            Is(lease(b"b", 7, 8, 4_000)),
            Is(Record::SessionEnded { session: 7 }),
        ],
    );
}

/// A node that catches up ends turns by the thousand while it makes an image. It forgot meanwhile
/// that a grant was over, which the image's reader had yet to apply: the reader kept the lock, and
/// stopped at the next comparison.
#[test]
fn a_grant_behind_its_end() {
    for (late, later) in [
        (shared(5), shared(6)),
        (lease(b"key", 5, 7, u64::MAX), lease(b"key", 6, 7, u64::MAX)),
    ] {
        for middle in [TurnsEnd, Reign] {
            every_image_comes_to_the_same_end(
                1,
                &[
                    Reign,
                    Is(ceiling(100)),
                    Is(session(7, u64::MAX)),
                    Is(released(b"key", 5)),
                    TurnsEnd,
                    Is(late),
                    middle,
                    TurnsEnd,
                    TurnsEnd,
                    Is(ceiling(200)),
                    Is(later),
                    TurnsEnd,
                    Is(released(b"key", 6)),
                    TurnsEnd,
                    TurnsEnd,
                ],
            );
        }
    }
}

/// A key without holders goes with all that was known of it, also that a late grant is below a
/// later one. Among enough others that are free, so that room is made.
#[test]
fn a_late_grant_of_a_key_that_was_garbage_since() {
    let filling = beside_a(200);
    let mut history = vec![Reign, Is(ceiling(1_000_000)), Is(session(7, u64::MAX))];
    for (key, fence) in filling.iter().zip(1_000..) {
        history.push(Is(lease(key.as_bytes(), fence, 7, u64::MAX)));
        history.push(Is(released(key.as_bytes(), fence)));
    }
    let filled = history.len();
    history.extend([
        Is(lease(b"a", 12, 7, u64::MAX)),
        Is(released(b"a", 12)),
        TurnsEnd,
        Is(lease(b"a", 11, 7, u64::MAX)),
        TurnsEnd,
        TurnsEnd,
        TurnsEnd,
        Is(lease(b"a", 13, 7, u64::MAX)),
    ]);
    every_image_comes_to_the_same_end(filled, &history);
}

#[test]
fn room_is_made_again_behind_an_image() {
    let mut ledger = ledger(&[ceiling(100), session(7, u64::MAX), released(b"key", 5)]);
    let remembered = |ledger: &Ledger| -> usize {
        let parts = ledger.parts.iter();
        parts.map(Leases::remembered).sum()
    };
    let under_way = ledger.put_image_head(&mut Vec::new());
    (0..3).for_each(|_| end_turns(&mut ledger));
    assert_eq!(remembered(&ledger), 1);
    drop(under_way);
    (0..3).for_each(|_| end_turns(&mut ledger));
    assert_eq!(remembered(&ledger), 0);
}
