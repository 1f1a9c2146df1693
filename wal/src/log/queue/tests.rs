//! Tickets and how far the writer is.

use super::*;

#[test]
fn progress_is_up_to_the_first_ticket_that_is_missing() {
    let mut progress = Progress::default();
    assert_eq!(progress.done(), Ticket::ZERO);
    for (ticket, done) in [(2, 0), (3, 0), (1, 3), (5, 3), (4, 5), (6, 6)] {
        progress.see(Ticket(ticket));
        assert_eq!(progress.done(), Ticket(done), "after {ticket}");
    }
}

#[test]
#[should_panic(expected = "was seen before")]
fn a_ticket_comes_once() {
    let mut progress = Progress::default();
    progress.see(Ticket(1));
    progress.see(Ticket(1));
}

#[test]
fn the_queue_says_when_it_is_too_long_and_when_it_is_not_any_more() {
    let queue = Queue::new(Position::default());
    let mut batch = Batch::new();
    batch.bytes.resize(QUEUE_BYTES_MAX / 2, 0);
    queue.push(batch);
    assert!(!queue.is_congested());
    let mut batch = Batch::new();
    batch.bytes.resize(QUEUE_BYTES_MAX / 2 + 1, 0);
    queue.push(batch);
    assert!(queue.is_congested());
    queue.pop().unwrap();
    assert!(!queue.is_congested());
}

#[test]
fn a_sleeping_writer_is_woken_once_and_one_with_work_does_not_sleep() {
    let queue = Queue::new(Position::default());
    assert!(!queue.must_wake(), "it is awake");
    assert!(queue.fall_asleep());
    queue.push(Batch::new());
    assert!(queue.must_wake());
    assert!(!queue.must_wake());
    assert!(!queue.fall_asleep(), "there is a batch");
    queue.pop().unwrap();
    queue.stop();
    assert!(!queue.fall_asleep(), "it is to stop");
}

#[test]
fn whoever_waits_is_told_of_the_failure() {
    let queue = Queue::new(Position::default());
    queue.publish(Ticket(3), Position::new(9));
    assert!(queue.wait(Ticket(3)).is_ok());
    queue.fail(WalError::WriterGone);
    queue.fail(WalError::Closed);
    assert!(matches!(queue.wait(Ticket(4)), Err(WalError::WriterGone)));
    assert!(queue.wait(Ticket(3)).is_ok(), "what is synced stays so");
}

#[test]
#[should_panic(expected = "is for the log to write")]
fn callers_do_not_write_clean_stops() {
    Batch::new().push(&Record::CleanStop { unix_ms: 1 });
}
