//! The mailbox: a taker that goes to sleep has either found every message or been woken for it.

use engine::{Fault, Mailbox, Posted};
use loom::thread;
use loom_tests::{check, check_broken};
use std::sync::Arc;

/// A message is posted while the taker works through an earlier one and goes to sleep.
fn post_against_take() {
    let mailbox = Arc::new(Mailbox::new(4));
    assert_eq!(mailbox.post(1), Posted::Wake);

    let poster = thread::spawn({
        let mailbox = mailbox.clone();
        move || mailbox.post(2)
    });
    mailbox.begin();
    let mut taken = Vec::new();
    while let Some(message) = mailbox.take() {
        taken.push(message);
    }
    let posted = poster.join().unwrap();

    assert!(
        taken == [1, 2] || posted == Posted::Wake,
        "the taker sleeps and {taken:?} is all it has"
    );
}

/// Two messages are posted while the taker looks by itself, and then goes to sleep.
fn post_against_attend() {
    let mailbox = Arc::new(Mailbox::new(4));
    let posters = [1, 2].map(|message| {
        let mailbox = mailbox.clone();
        thread::spawn(move || mailbox.post(message))
    });
    mailbox.attend();
    let mut taken = Vec::from_iter(mailbox.take());
    mailbox.begin();
    while let Some(message) = mailbox.take() {
        taken.push(message);
    }
    let is_woken = posters
        .map(|poster| poster.join().unwrap())
        .contains(&Posted::Wake);
    if is_woken {
        mailbox.begin();
        while let Some(message) = mailbox.take() {
            taken.push(message);
        }
    }

    taken.sort_unstable();
    assert_eq!(taken, [1, 2], "the taker sleeps on its mail");
}

#[test]
fn a_taker_that_looks_by_itself_goes_to_sleep_with_an_empty_box_or_is_woken() {
    check(post_against_attend);
}

#[test]
#[should_panic(expected = "the taker sleeps")]
fn an_attending_taker_that_lowers_its_flag_last_is_caught() {
    check_broken(Fault::MailboxLowersFlagLast, post_against_attend);
}

#[test]
fn a_message_is_taken_or_wakes_the_taker() {
    check(post_against_take);
}

#[test]
#[should_panic(expected = "the taker sleeps")]
fn a_flag_lowered_last_is_caught() {
    check_broken(Fault::MailboxLowersFlagLast, post_against_take);
}
