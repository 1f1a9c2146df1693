//! Frames and keystrokes, without a terminal or a server.

use super::model::{Command, Input, Model, Tab};
use super::sample::Sample;
use super::*;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use std::collections::HashMap;

fn sample(numbers: &[(&str, u64)], at: Instant) -> Sample {
    let numbers = numbers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value));
    Sample {
        at,
        numbers: numbers.collect::<HashMap<_, _>>(),
        locks: Vec::new(),
        has_more_locks: false,
        sessions: Vec::new(),
        has_more_sessions: false,
        recovering: None,
    }
}

fn model() -> Model {
    let mut model = Model::new("127.0.0.1:7400".to_owned(), String::new());
    let at = Instant::now();
    model.update(sample(&[("requests_total", 100), ("uptime_ms", 1_000)], at));
    model
}

fn press(model: &mut Model, code: KeyCode) -> Command {
    model.press(&KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn rates_are_those_between_two_looks() {
    let mut model = model();
    assert_eq!(model.requests.last(), 100, "the first one: since the start");
    let at = model.sample.as_ref().unwrap().at + Duration::from_secs(2);
    let numbers = [
        ("requests_total", 500),
        ("expiry_lag_ms_sum", 30),
        ("expiry_lag_count", 10),
        ("log_sync_us_sum", 900),
        ("log_sync_count", 3),
    ];
    model.update(sample(&numbers, at));
    assert_eq!(model.requests.last(), 200);
    assert_eq!(model.expiry_lag.last(), 3_000);
    assert_eq!(model.commits.last(), 300);
    // A server that was started anew counts from zero.
    model.update(sample(
        &[("requests_total", 7)],
        at + Duration::from_secs(1),
    ));
    assert_eq!(model.requests.last(), 0);
}

#[test]
fn a_frame_fits_any_size() {
    let mut model = model();
    for columns in [1, 10, 24, 30, 80, 300] {
        for rows in [1, 2, 4, 5, 9, 10, 16, 60] {
            let text = frame(&mut model, columns, rows);
            assert!(
                text.lines().count() <= usize::from(rows),
                "{columns}x{rows}"
            );
        }
    }
    let text = frame(&mut model, 110, 30);
    for expected in ["127.0.0.1:7400", "granting", "requests 100/s", "q quit"] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
}

#[test]
fn recovery_and_the_cluster_are_said() {
    let mut model = model();
    let mut next = sample(
        &[("cluster_term", 7), ("cluster_node_id", 2)],
        Instant::now(),
    );
    next.recovering = Some(Duration::from_secs(3));
    next.has_more_locks = true;
    model.update(next);
    let text = frame(&mut model, 120, 30);
    assert!(text.contains("recovering for 3.0s"), "{text}");
    assert!(text.contains("node 2 leads in term 7"), "{text}");
    assert!(text.contains("narrows them down"), "{text}");
}

#[test]
fn keys_choose_the_table_its_order_and_its_filter() {
    let mut model = model();
    assert_eq!((model.tab, model.column()), (Tab::Locks, "QUEUE"));
    press(&mut model, KeyCode::Char('s'));
    assert_eq!(model.column(), "KEY");
    press(&mut model, KeyCode::Char('r'));
    assert!(model.is_reversed());
    press(&mut model, KeyCode::Tab);
    assert_eq!((model.tab, model.column()), (Tab::Prefixes, "LOCKS"));
    assert!(!model.is_reversed());
    press(&mut model, KeyCode::Char('1'));
    press(&mut model, KeyCode::Char('/'));
    for c in "q/x".chars() {
        assert_eq!(press(&mut model, KeyCode::Char(c)), Command::Nothing);
    }
    press(&mut model, KeyCode::Backspace);
    assert_eq!(press(&mut model, KeyCode::Enter), Command::Look);
    assert_eq!(model.prefix(), "q/");
    // Nothing is selected that could be taken away.
    press(&mut model, KeyCode::Char('f'));
    assert_eq!(model.input, Input::None);
    assert!(model.message.contains("select a lock"));
    assert_eq!(press(&mut model, KeyCode::Char('q')), Command::Quit);
}

#[test]
fn what_a_key_has_come_to_stays_until_the_next_key() {
    let look = |model: &mut Model| model.update(sample(&[], Instant::now()));
    let mut model = Model::new("s".to_owned(), String::new());
    look(&mut model);
    press(&mut model, KeyCode::Char('f'));
    look(&mut model);
    assert!(model.message.contains("select a lock"));
    press(&mut model, KeyCode::Down);
    assert_eq!(model.message, "");
    model.complain("no answer".to_owned());
    look(&mut model);
    assert_eq!(model.message, "");
}

#[test]
fn nothing_is_taken_away_without_a_yes() {
    let victim = Victim {
        key: b"k".to_vec(),
        fence: protocol::Fence::new(7).unwrap(),
        holder: "a\x1b[2J".to_owned(),
    };
    for (code, is_taken) in [
        (KeyCode::Char('n'), false),
        (KeyCode::Enter, false),
        (KeyCode::Esc, false),
        (KeyCode::Char('y'), true),
    ] {
        let mut model = model();
        model.input = Input::Confirm(victim.clone());
        let text = frame(&mut model, 120, 30);
        assert!(
            text.contains("take k (fence 7) away from a\\u{1b}[2J?"),
            "{text}"
        );
        let command = press(&mut model, code);
        assert_eq!(
            command == Command::Force(victim.clone()),
            is_taken,
            "{code:?}"
        );
        assert_eq!(model.input, Input::None);
    }
}
