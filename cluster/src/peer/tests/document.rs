//! The tables of `docs/cluster-wire.md` say what the code says, each row of them and nothing else.

use super::vectors::messages;
use crate::codec::CONFIGS_MAX;
use crate::entry::{BatchItem, Birth, Format, Item, SESSION_KEY_BYTES};
use crate::peer::wire::*;
use crate::peer::*;
use crate::types::{ADDRESS_BYTES_MAX, Command, NODES_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const DOCUMENT: &str = include_str!("../../../../docs/cluster-wire.md");

/// The rows of the table under a heading, cell by cell, without its head.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let heading = format!("## {heading}");
    let section = DOCUMENT.lines().skip_while(|line| *line != heading).skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let table = section.filter(|line| line.starts_with("| "));
    let cells = |row: &'static str| {
        let row = row.trim_start_matches('|').trim_end_matches('|');
        row.split('|').map(str::trim).collect()
    };
    let rows: Vec<Vec<_>> = table.skip(1).map(cells).collect();
    assert!(!rows.is_empty(), "no table under {heading}");
    rows
}

/// All that stands between backticks.
fn names(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// As the document writes numbers.
fn grouped(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}

fn s(time: Duration) -> String {
    assert_eq!(time.subsec_nanos(), 0);
    format!("{} s", time.as_secs())
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

fn mib(bytes: usize) -> String {
    assert_eq!(bytes % (1 << 20), 0);
    format!("{} MiB", bytes >> 20)
}

fn name_of(message: &Message) -> String {
    let debug = format!("{message:?}");
    debug.split(['(', ' ']).next().unwrap().to_owned()
}

#[test]
fn the_kinds_of_messages_are_those_of_the_document() {
    let documented: BTreeMap<u8, &str> = rows("Messages")
        .iter()
        .map(|row| (hex(row[0]), names(row[1])[0]))
        .collect();
    let pinned: BTreeMap<u8, String> = messages()
        .iter()
        .map(|(_, message)| (message.kind(), name_of(message)))
        .collect();
    let read = (0..=u8::MAX).filter(|kind| {
        let frame = [&[*kind][..], &[0; 8]].concat();
        !matches!(Frame::decode(frame.into()), Err(FrameError::UnknownKind(_)))
    });
    assert_eq!(
        documented.keys().copied().collect::<Vec<_>>(),
        read.collect::<Vec<_>>()
    );
    let documented = documented.iter().map(|(kind, name)| (*kind, *name));
    let pinned = pinned.iter().map(|(kind, name)| (*kind, name.as_str()));
    assert_eq!(documented.collect::<Vec<_>>(), pinned.collect::<Vec<_>>());
}

fn hex(text: &str) -> u8 {
    let digits = text.strip_prefix("0x").expect("a kind is in hex");
    u8::from_str_radix(digits, 16).unwrap()
}

#[test]
fn requests_hello_and_replies_have_their_ranges() {
    let shape = rows("Shapes");
    assert_eq!(
        shape[0][3],
        format!(
            "how many bytes follow this field: at least {HEADER_BYTES}, at most {} in the hello and {} after it",
            grouped(hello::HELLO_BYTES_MAX),
            grouped(FRAME_BYTES_MAX)
        )
    );
    assert_eq!(
        shape[1][3],
        "0x01 to 0x0f the hello, 0x10 to 0x7f requests, 0x80 to 0xff replies"
    );
    for (_, message) in messages() {
        let is_reply = matches!(
            message,
            Message::Appended(_)
                | Message::Voted(_)
                | Message::Transferred(_)
                | Message::Installed(_)
                | Message::Installing
                | Message::Answer(_)
        );
        let range = if is_reply { 0x80..=0xff } else { 0x10..=0x7f };
        assert!(range.contains(&message.kind()), "{message:?}");
    }
}

#[test]
fn the_hello_is_that_of_the_document() {
    let bytes = hello::CHALLENGE_BYTES;
    let magic: Vec<String> = hello::MAGIC.iter().map(|b| format!("{b:02x}")).collect();
    let magic = format!("magic `{}` (\"FNPR\")", magic.join(" "));
    let reason = hello::REASON_BYTES_MAX;
    let kinds: Vec<(u8, &str, String)> = rows("The hello")
        .iter()
        .map(|row| {
            let [kind, name] = row[1].split_once(' ').map(|(a, b)| [a, b]).unwrap();
            (hex(kind), names(name)[0], row[3].to_owned())
        })
        .collect();
    let challenge = format!("challenge ({bytes} random bytes)");
    let proof = format!("proof ({} bytes)", key::KEY_BYTES);
    let expected = [
        (
            kind::HELLO,
            "Hello",
            format!("{magic}, introduction, lane `u8`, {challenge}"),
        ),
        (
            kind::CHALLENGE,
            "Challenge",
            format!("introduction, {challenge}, {proof}"),
        ),
        (kind::PROOF, "Proof", proof),
        (kind::WELCOME, "Welcome", String::new()),
        (
            kind::REFUSED,
            "Refused",
            format!("a sentence in UTF-8, at most {reason} bytes; the sender closes"),
        ),
    ];
    assert_eq!(kinds, expected);
    let label = std::str::from_utf8(hello::LABEL).unwrap();
    for sentence in [
        format!("`{label}` in ASCII"),
        format!(
            "The hello takes at most {} seconds.",
            HELLO_TIMEOUT.as_secs()
        ),
        format!("At most {} connections may be", incoming::UNPROVED_MAX),
        format!("Version {WIRE_VERSION}. "),
    ] {
        assert!(DOCUMENT.contains(&sentence), "{sentence}");
    }
    let minute = complaint::QUIET == Duration::from_secs(60);
    assert!(minute && DOCUMENT.contains("with a line in the log at most once a minute"));
    let introduction =
        "version `u16`, format `u16`, cluster id `u128` (0: in no cluster yet), node `u64`";
    assert!(DOCUMENT.contains(introduction));
    assert_eq!(hello::INTRODUCTION_BYTES, (16 + 16 + 128 + 64 + 64) / 8);
}

#[test]
fn the_lanes_are_those_of_the_document() {
    let table = rows("Lanes");
    let documented: Vec<(u8, &str)> = table
        .iter()
        .map(|row| (row[0].parse().unwrap(), row[1]))
        .collect();
    let known = (0..=u8::MAX).filter_map(|code| Some((code, Lane::of(code)?.to_string())));
    let known: Vec<(u8, String)> = known.collect();
    let known: Vec<(u8, &str)> = known.iter().map(|(code, lane)| (*code, &**lane)).collect();
    assert_eq!(documented, known);

    // Each message goes on some lane, and nothing else does.
    let carried: BTreeSet<&str> = table.iter().flat_map(|row| names(row[2])).collect();
    let replied: BTreeSet<&str> = table.iter().flat_map(|row| names(row[3])).collect();
    let written = messages();
    let (replies, requests): (Vec<_>, Vec<_>) = written
        .iter()
        .map(|(_, message)| message)
        .partition(|message| message.kind() >= 0x80);
    let named = |messages: &[&Message]| messages.iter().map(|m| name_of(m)).collect();
    let requests: BTreeSet<String> = named(&requests);
    let mut replies: BTreeSet<String> = named(&replies);
    assert_eq!(carried, requests.iter().map(String::as_str).collect());
    // The document says of the control lane only in which order its calls are answered.
    replies.retain(|name| !["Voted", "Transferred"].contains(&name.as_str()));
    assert_eq!(replied, replies.iter().map(String::as_str).collect());

    let unanswered = |most: usize| format!("at most {most} are unanswered");
    assert!(table[0][3].contains(&unanswered(pipeline::APPENDS_MAX)));
    assert!(table[1][3].contains(&unanswered(control::CALLS_MAX)));
    let sign = format!(
        "`Installing` every {} while it lasts",
        s(serving::INSTALLING_PERIOD)
    );
    assert!(table[2][3].contains(&sign));
}

#[test]
fn the_limits_are_those_of_the_document() {
    let documented: Vec<(String, String)> = rows("Limits")
        .iter()
        .map(|row| (row[0].to_owned(), row[1].to_owned()))
        .collect();
    assert_eq!(outgoing::BACKOFF_MIN, control::BACKOFF_MIN);
    assert_eq!(serving::SNAPSHOT_HEAD_TIMEOUT, image::PART_TIMEOUT);
    let expected = [
        (
            "entries of an append",
            format!(
                "{}, together {} with their log ids and lengths",
                grouped(ENTRIES_MAX),
                mib(APPEND_BYTES_MAX)
            ),
        ),
        (
            "membership",
            format!(
                "{NODES_MAX} nodes, {CONFIGS_MAX} sets of voters, addresses of {ADDRESS_BYTES_MAX} bytes"
            ),
        ),
        (
            "part of a snapshot",
            format!(
                "{}; {} parts",
                mib(SNAPSHOT_PART_BYTES),
                grouped(SNAPSHOT_PARTS_MAX)
            ),
        ),
        (
            "question, answer",
            format!("{} bytes", grouped(ASK_BYTES_MAX)),
        ),
        (
            "connections that ask",
            format!(
                "{}; one more, and the oldest is closed. One that asks nothing for {} is closed",
                incoming::ASKING_MAX,
                s(serving::ASK_IDLE_TIMEOUT)
            ),
        ),
        (
            "opening a connection",
            format!(
                "{}, then {} for the hello",
                s(CONNECT_TIMEOUT),
                s(HELLO_TIMEOUT)
            ),
        ),
        (
            "unanswered append or call",
            format!(
                "the connection is given up after {}, and opened again",
                s(control::STALL_TIMEOUT)
            ),
        ),
        (
            "unanswered question",
            format!(
                "given up after {}, connecting included",
                s(outgoing::ANSWER_TIMEOUT)
            ),
        ),
        (
            "an append that only says how far the log is committed",
            format!(
                "waits {} for entries to travel with",
                ms(pipeline::COMMIT_NEWS_DELAY)
            ),
        ),
        (
            "a snapshot that does not move",
            format!("given up after {}", s(image::PART_TIMEOUT)),
        ),
        (
            "pauses of the sender between parts of a snapshot",
            format!(
                "{}, together at most {}, so that the entries of clients are not held up behind it",
                ms(image::PART_EVERY),
                s(image::PAUSES_MAX)
            ),
        ),
        (
            "pauses between attempts to connect",
            format!(
                "none after a break; then {}, doubling up to {} (appends, snapshots) or {} (control)",
                ms(outgoing::BACKOFF_MIN),
                s(outgoing::BACKOFF_MAX),
                ms(control::BACKOFF_MAX)
            ),
        ),
        (
            "control connection without calls",
            format!("closed after {}", s(control::IDLE_TIMEOUT)),
        ),
    ];
    let expected: Vec<(String, String)> = expected
        .map(|(what, limit)| (what.to_owned(), limit))
        .into();
    assert_eq!(documented, expected);
}

#[test]
fn the_entries_are_those_of_the_document() {
    let documented: BTreeMap<u8, (&str, usize)> = rows("Entries")
        .iter()
        .map(|row| {
            (
                row[0].parse().unwrap(),
                (names(row[1])[0], bytes_of(row[2])),
            )
        })
        .collect();
    let items = [
        Item::Born(Birth {
            cluster_id: 1,
            session_key: [2; SESSION_KEY_BYTES],
            birth_unix_ms: 3,
        }),
        Item::Reign { node: 1 },
        Item::Batch(BatchItem {
            reign: 1,
            seq: 2,
            stamp_ms: 3,
            records: Bytes::new(),
        }),
        Item::Joined { node: 1, disk: 2 },
        Item::Checked { index: 1, hash: 2 },
        Item::Format(Format::NEWEST),
    ];
    let written: Vec<(u8, String, usize)> = items
        .iter()
        .map(|item| {
            let debug = format!("{item:?}");
            let name = debug.split(['(', ' ']).next().unwrap().to_owned();
            let bytes = item.encode().0;
            (bytes[0], name, bytes.len() - 1)
        })
        .collect();
    let written = written
        .iter()
        .map(|(kind, name, bytes)| (*kind, (&**name, *bytes)));
    assert_eq!(documented, written.collect());

    let read = (0..=u8::MAX).filter(|kind| {
        let entry = Command(Bytes::copy_from_slice(&[*kind]));
        let error = Item::decode(&entry).expect_err("it has no body");
        error.field != "kind of an entry"
    });
    assert!(read.eq(documented.keys().copied()));
}

/// How many bytes the fields of a body have, as the document lists them.
fn bytes_of(body: &str) -> usize {
    let fields = body.split(['`', '(', ')']).filter_map(|word| {
        let bits = word.strip_prefix('u').and_then(|bits| bits.parse().ok());
        let bits = bits.map(|bits: usize| bits / 8);
        bits.or_else(|| word.strip_suffix(" bytes")?.parse().ok())
    });
    fields.sum()
}
