//! The log with its thread: tickets, failures, and several threads that append.

use super::Listener;
use crate::files::segment::SEGMENT_BYTES_MIN;
use crate::record::{Lease, Record, Scope};
use crate::{Batch, Opened, Options, Recovered, Ticket, Wal, WalError, open_on};
use disk::forgetful::{FailKind, ForgetfulDisk};
use parking_lot::Mutex;
use std::sync::Arc;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES_MIN + 2000,
        spares_max: 2,
        ..Options::new(Scope::Leases, 5)
    }
}

fn open(disk: &ForgetfulDisk) -> (Opened, Recovered) {
    open_on(Arc::new(disk.clone()), &options()).unwrap()
}

fn start(disk: &ForgetfulDisk) -> (Wal, Heard) {
    let heard = Heard::default();
    let wal = open(disk).0.start(heard.clone()).unwrap();
    (wal, heard)
}

#[derive(Clone, Default)]
struct Heard(Arc<Mutex<(Vec<Ticket>, Vec<String>)>>);

impl Heard {
    fn last(&self) -> Ticket {
        self.0.lock().0.last().copied().unwrap_or_default()
    }

    fn failures(&self) -> Vec<String> {
        self.0.lock().1.clone()
    }
}

impl Listener for Heard {
    fn synced(&mut self, up_to: Ticket) {
        assert!(self.last() <= up_to, "it never goes back");
        self.0.lock().0.push(up_to);
    }

    fn failed(&mut self, error: &WalError) {
        self.0.lock().1.push(error.to_string());
    }
}

const CLOCK: Record<'_> = Record::Clock {
    unix_ms: 1,
    wall_unix_ms: None,
};

fn opened(session: u64) -> Record<'static> {
    Record::SessionOpened {
        session,
        ttl_ms: 1,
        deadline_unix_ms: 2,
        name: b"",
    }
}

fn granted(fence: u64) -> Record<'static> {
    Record::Granted(Lease {
        key: b"key",
        fence,
        session: 1,
        mode: types::Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms: 9,
        granted_unix_ms: 5,
        note: b"",
    })
}

#[test]
fn what_several_threads_append_is_all_there_in_the_order_of_each() {
    let disk = ForgetfulDisk::new();
    let (wal, heard) = start(&disk);
    std::thread::scope(|scope| {
        for thread in 1..=4 {
            let wal = &wal;
            scope.spawn(move || {
                let mut last = Ticket::ZERO;
                for number in 0..500 {
                    let session = thread * 1000 + number;
                    let ticket = if number % 3 == 0 {
                        let mut batch = Batch::new();
                        batch.push(&opened(session));
                        batch.push(&CLOCK);
                        wal.append_batch(batch)
                    } else {
                        wal.append(&opened(session))
                    };
                    assert!(ticket > last);
                    last = ticket;
                    // The session before the last ends: that must come after its beginning.
                    if number > 1 {
                        wal.append(&Record::SessionEnded {
                            session: session - 2,
                        });
                    }
                    if number % 100 == 0 {
                        wal.wait(ticket).unwrap();
                        assert!(wal.synced() >= ticket);
                    }
                }
            });
        }
    });
    wal.close(7).unwrap();
    assert_eq!(heard.last(), wal.synced());
    assert!(heard.failures().is_empty());
    let metrics = wal.metrics();
    assert_eq!(
        metrics.sync_us.counts().count(),
        metrics.batch_records.counts().count()
    );
    assert!(metrics.segments.get() > 1);
    let (_, recovered) = open(&disk);
    assert!(recovered.was_clean);
    assert_eq!(recovered.last_clock_unix_ms, 7);
    let mut left: Vec<u64> = recovered
        .sessions
        .iter()
        .map(|session| session.session)
        .collect();
    left.sort();
    let expected = (1..=4).flat_map(|thread| [thread * 1000 + 498, thread * 1000 + 499]);
    assert_eq!(left, expected.collect::<Vec<u64>>());
}

#[test]
fn the_first_error_is_the_last_and_is_told_once() {
    for kind in [FailKind::Broken, FailKind::Full] {
        // The write, the sync, and the mark that is written while there is nothing to do.
        for later in 0..20 {
            let disk = ForgetfulDisk::new();
            let (wal, heard) = start(&disk);
            disk.fail_at(disk.operations() + later, kind);
            let mut synced = Ticket::ZERO;
            let error = loop {
                let ticket = wal.append(&CLOCK);
                match wal.wait(ticket) {
                    Ok(()) => synced = ticket,
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, WalError::Io(_)), "{error}");
            let after = wal.append(&CLOCK);
            assert!(wal.wait(after).is_err());
            assert!(wal.close(9).is_err());
            assert_eq!(wal.synced(), synced);
            assert_eq!(heard.last(), synced);
            assert_eq!(heard.failures(), [error.to_string()]);
            assert!(wal.failure().is_some());
        }
    }
}

#[test]
fn a_fence_above_every_synced_ceiling_stops_the_log_before_it_is_written() {
    let disk = ForgetfulDisk::new();
    let (wal, heard) = start(&disk);
    let ceiling = |fence| Record::Ceiling { shard: 0, fence };
    wal.wait(wal.append(&ceiling(10))).unwrap();
    wal.append(&opened(1));
    wal.wait(wal.append(&granted(10))).unwrap();
    // A ceiling that comes with the grant is not on the disk before it.
    let mut batch = Batch::new();
    batch.push(&ceiling(20));
    batch.push(&granted(11));
    let ticket = wal.append_batch(batch);
    assert!(matches!(wal.wait(ticket), Err(WalError::WriterGone)));
    drop(wal);
    assert_eq!(heard.failures().len(), 1);
    let (_, recovered) = open(&disk);
    assert_eq!(recovered.ceiling_max, 10);
    let fences: Vec<u64> = recovered.leases.iter().map(|lease| lease.fence).collect();
    assert_eq!(fences, [10]);
}

#[test]
fn a_ceiling_that_would_fall_stops_the_log_before_it_is_written() {
    let disk = ForgetfulDisk::new();
    let (wal, _) = start(&disk);
    let ceiling = |fence| Record::Ceiling { shard: 3, fence };
    wal.append(&ceiling(10));
    assert!(wal.wait(wal.append(&ceiling(9))).is_err());
    drop(wal);
    let (wal, _) = start(&disk);
    wal.wait(wal.append(&ceiling(10))).unwrap();
    drop(wal);
    let (wal, _) = start(&disk);
    assert!(
        wal.wait(wal.append(&ceiling(9))).is_err(),
        "lower than that of the server before"
    );
}

#[test]
fn dropping_a_log_loses_nothing_but_is_no_clean_stop() {
    let disk = ForgetfulDisk::new();
    let (wal, _) = start(&disk);
    wal.append(&opened(44));
    drop(wal);
    let (opened, recovered) = open(&disk);
    assert!(!recovered.was_clean);
    assert_eq!(recovered.sessions[0].session, 44);
    // Neither is dropping one that was never started.
    drop(opened);
    assert_eq!(open(&disk).1.sessions.len(), 1);
}

#[test]
fn after_the_end_nobody_waits_in_vain() {
    let disk = ForgetfulDisk::new();
    let (wal, _) = start(&disk);
    wal.close(5).unwrap();
    let ticket = wal.append(&CLOCK);
    assert!(matches!(wal.wait(ticket), Err(WalError::Closed)));
    assert!(matches!(wal.close(6), Err(WalError::Closed)));
    // The directory is free.
    assert!(open(&disk).1.was_clean);
}

#[test]
fn an_empty_batch_waits_for_what_came_before() {
    let disk = ForgetfulDisk::new();
    let (wal, _) = start(&disk);
    let ticket = wal.append(&CLOCK);
    assert_eq!(wal.append_batch(Batch::new()), ticket);
    wal.wait(ticket).unwrap();
}

#[test]
fn a_log_without_a_thread_writes_when_its_caller_says_so_and_loses_the_rest() {
    let disk = ForgetfulDisk::new();
    let heard = Heard::default();
    let wal = open(&disk).0.start_stepped(heard.clone()).unwrap();
    let first = wal.append(&opened(1));
    assert_eq!(heard.last(), Ticket::ZERO);
    wal.turn();
    assert_eq!(heard.last(), first);
    let second = wal.append(&opened(2));
    wal.wait(second).unwrap();
    assert_eq!(wal.synced(), second);
    wal.append(&opened(3));
    drop(wal);
    let (_, recovered) = open(&disk);
    let sessions = recovered.sessions.iter().map(|session| session.session);
    assert_eq!(sessions.collect::<Vec<_>>(), [1, 2]);
}
