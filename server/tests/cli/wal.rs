//! The commands that look at a data directory and repair it, on logs that the library wrote.

use crate::program::{Ended, Server, await_condition, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use wal::{Lease, Options, Record, Scope};

const NOW_UNIX_MS: u64 = 1_700_000_000_000;
/// The highest ceiling in [`log`].
const CEILING: u64 = 5_000_000;
/// Bytes of a record without payload, and of the last one in [`log`].
const HEADER_BYTES: u64 = 21;
const CLEAN_STOP_BYTES: u64 = HEADER_BYTES + 8;

fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        ..Options::new(Scope::Leases, NOW_UNIX_MS)
    }
}

/// A log with a lease and a session, and a clean stop at its end.
fn log() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (opened, _) = wal::open(dir.path(), &options()).unwrap();
    let wal = opened.start(()).unwrap();
    let ceiling = Record::Ceiling {
        shard: 3,
        fence: CEILING,
    };
    // Each in a write of its own: a later write is what proves that an earlier one was there.
    for record in [
        ceiling,
        Record::SessionOpened {
            session: 31,
            ttl_ms: 30_000,
            deadline_unix_ms: NOW_UNIX_MS + 30_000,
            name: b"billing",
        },
        granted(b"orders/42", 41),
        granted(b"orders/\xff", 42),
        Record::Released {
            key: b"orders/\xff",
            fence: 42,
            count_left: 0,
        },
    ] {
        wal.wait(wal.append(&record)).unwrap();
    }
    wal.close(NOW_UNIX_MS + 1000).unwrap();
    dir
}

fn granted(key: &[u8], fence: u64) -> Record<'_> {
    Record::Granted(Lease {
        key,
        fence,
        session: 31,
        mode: protocol::Mode::Exclusive,
        is_session_bound: false,
        count: 1,
        until_unix_ms: NOW_UNIX_MS + 20_000,
        granted_unix_ms: NOW_UNIX_MS,
        note: b"nightly run",
    })
}

/// The files of the directory, byte for byte.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files = entries.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    files.collect()
}

fn change(dir: &Path, change: impl FnOnce(&mut [u8])) {
    let path = dir.join("segment-0000000000000001.wal");
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// The offset of the first record of this kind.
fn offset_of(dir: &Path, kind: &str) -> usize {
    let records = dump_json(dir, 0);
    let record = records.iter().find(|record| record["kind"] == kind);
    record.unwrap()["offset"].as_u64().unwrap() as usize
}

/// Cuts the last write short.
fn tear(dir: &Path) {
    let end = offset_of(dir, "clean-stop") + CLEAN_STOP_BYTES as usize;
    change(dir, |bytes| bytes[end..end + 10].fill(0xab));
}

/// Changes a byte of the first grant.
fn damage(dir: &Path) {
    let offset = offset_of(dir, "granted");
    change(dir, |bytes| bytes[offset + 30] ^= 0x40);
}

fn command(command: &str, dir: &Path, flags: &[&str]) -> Ended {
    let dir = dir.to_str().unwrap();
    run(["wal", command, dir].iter().chain(flags))
}

#[track_caller]
fn dump_json(dir: &Path, code: i32) -> Vec<Value> {
    let ended = command("dump", dir, &["--json"]);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let lines = ended.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_sound_log_is_called_sound_and_counted() {
    let dir = log();
    let before = files(dir.path());
    let text = command("verify", dir.path(), &[]).printed();
    for line in [
        "sound: 7 records",
        "the last server wrote down leases and stopped in good order",
        "highest ceiling  5000000",
        "last known time  2023-11-14T22:13:21.000Z",
        "sessions         1",
        "leases           1",
    ] {
        assert!(text.lines().any(|it| it == line), "{line:?} in {text}");
    }

    let json = command("verify", dir.path(), &["--json"]).printed();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["sound"], true);
    assert_eq!(json["ceiling_max"], CEILING);
    assert_eq!(json["was_clean"], true);
    assert_eq!(json["leases"], 1);
    assert_eq!(json["files"][0]["records"], 7);
    assert_eq!(json["files"][0]["role"], "log");
    assert_eq!(json["torn"], Value::Null);
    assert!(files(dir.path()) == before, "looking changes nothing");
}

#[test]
fn a_dump_has_a_line_for_every_record() {
    let dir = log();
    let text = command("dump", dir.path(), &[]).printed();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 7, "{text}");
    let grant = "granted key=\"orders/42\" fence=41 session=0x1f exclusive count=1 \
                 since=2023-11-14T22:13:20.000Z until=2023-11-14T22:13:40.000Z note=\"nightly run\"";
    assert!(lines[3].ends_with(grant), "{text}");
    // The values begin in the same column on every line.
    let column = lines[3].find("granted").unwrap();
    assert!(
        lines.iter().all(|line| line.as_bytes()[column - 1] == b' '),
        "{text}"
    );
    assert!(lines[0][column..].starts_with("started "), "{text}");

    let records = dump_json(dir.path(), 0);
    let kinds: Vec<&str> = records
        .iter()
        .map(|record| record["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "started",
            "ceiling",
            "session-opened",
            "granted",
            "granted",
            "released",
            "clean-stop"
        ]
    );
    assert_eq!(records[3]["key"], "orders/42");
    assert_eq!(records[3]["until_unix_ms"], NOW_UNIX_MS + 20_000);
    assert_eq!(records[3]["metadata"], "nightly run");
    assert_eq!(records[3].get("salvaged"), None);
    assert_eq!(records[4]["key_hex"], "6f72646572732fff");
    assert_eq!(records[5]["count_left"], 0);
}

#[test]
fn a_torn_tail_is_reported_and_is_no_damage() {
    let dir = log();
    tear(dir.path());
    let text = command("verify", dir.path(), &[]).printed();
    assert!(text.contains("a write was cut short and is dropped: in "));
    assert!(text.contains("sound: 7 records"), "{text}");
    let records = dump_json(dir.path(), 0);
    assert_eq!(records.len(), 8);
    assert!(
        records[7]["torn"].as_str().unwrap().contains("offset"),
        "{records:?}"
    );
    let repair = command("repair", dir.path(), &["--accept-loss"]).printed();
    assert!(repair.contains("is sound: a server starts with it as it is. Nothing was changed."));
    wal::open(dir.path(), &options()).unwrap();
}

#[test]
fn damage_is_named_with_its_place_and_what_to_do() {
    let dir = log();
    let offset = offset_of(dir.path(), "granted");
    damage(dir.path());
    let before = files(dir.path());

    let ended = command("verify", dir.path(), &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in [
        "NOT SOUND: ",
        "segment-0000000000000001.wal is damaged at offset",
        &offset.to_string(),
        "its checksum does not match its bytes",
        "a later write is intact",
        "fencepost wal repair ",
    ] {
        assert!(ended.stdout.contains(part), "{part:?} in {ended:?}");
    }
    let ended = command("verify", dir.path(), &["--json"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let json: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(json["sound"], false);
    assert!(json["damage"].as_str().unwrap().contains("damaged at"));
    assert_eq!(
        json.get("ceiling_max"),
        None,
        "what is not known is not said"
    );

    let ended = command("dump", dir.path(), &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .stdout
            .contains("-- whole records, wherever they are:")
    );
    let records = dump_json(dir.path(), 1);
    let at = records
        .iter()
        .position(|record| record.get("damage").is_some())
        .unwrap();
    assert_eq!(at, 3, "three whole records come before");
    assert!(
        records[at + 1..]
            .iter()
            .all(|record| record["salvaged"] == true)
    );
    assert!(
        records[at + 1..]
            .iter()
            .any(|record| record["kind"] == "clean-stop")
    );
    assert!(files(dir.path()) == before, "looking changes nothing");
}

#[test]
fn repair_says_what_it_would_do_and_does_it_when_told() {
    let dir = log();
    damage(dir.path());
    let before = files(dir.path());

    let ended = command("repair", dir.path(), &[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for part in [
        "what is wrong ",
        "damaged at offset",
        "With --accept-loss this would be done:",
        "5000000 is the highest that was found",
        "leases           all lost; none ends after ",
        "-segment-0000000000000001.wal",
    ] {
        assert!(ended.stdout.contains(part), "{part:?} in {ended:?}");
    }
    assert!(ended.stderr.contains("nothing was changed"), "{ended:?}");
    assert!(files(dir.path()) == before, "nothing was changed");

    let text = command("repair", dir.path(), &["--accept-loss"]).printed();
    assert!(text.starts_with("repaired "), "{text}");
    assert!(text.contains("kept as          damaged-"), "{text}");
    let kept = files(dir.path());
    for bytes in before.values() {
        assert!(kept.values().any(|it| it == bytes), "the old files stay");
    }
    let json = command("verify", dir.path(), &["--json"]).printed();
    let json: Value = serde_json::from_str(&json).unwrap();
    let ceiling = json["ceiling_max"].as_u64().unwrap();
    assert!(ceiling >= CEILING + wal::FENCES_MARGIN, "{json}");
    assert!(text.contains(&format!("above {ceiling}\n")), "{text}");
    assert_eq!(json["leases"], 0);
    wal::open(dir.path(), &options()).unwrap();
}

#[test]
fn the_longest_lease_bounds_how_long_the_next_server_waits() {
    let horizon = |flags: &[&str]| {
        let dir = log();
        damage(dir.path());
        command("repair", dir.path(), flags).printed();
        let json = command("verify", dir.path(), &["--json"]).printed();
        let json: Value = serde_json::from_str(&json).unwrap();
        json["horizon_unix_ms"].as_u64().unwrap()
    };
    let day = horizon(&["--accept-loss"]);
    let minute = horizon(&["--accept-loss", "--lease-max", "1m"]);
    // The second ran later than the first, by less than a quarter of an hour.
    let apart = day - minute;
    assert!((85_000_000..=86_340_000).contains(&apart), "{apart}");

    let dir = log();
    let complaint = command("repair", dir.path(), &["--lease-max", "25h"]).complained(2);
    assert!(complaint.starts_with("--lease-max: "), "{complaint}");
}

#[test]
fn a_directory_in_use_is_left_alone() {
    let dir = log();
    // This process, and the program is another. What wrote the log is gone, but a program that
    // another test starts just now has its files, and their lock, until it becomes that program.
    let mut opened = None;
    await_condition(|| {
        opened = wal::open(dir.path(), &options()).ok();
        opened.is_some()
    });
    for (name, flags) in [
        ("verify", &[][..]),
        ("dump", &[]),
        ("repair", &["--accept-loss"]),
    ] {
        let complaint = command(name, dir.path(), flags).complained(2);
        assert!(
            complaint
                .ends_with("is in use. Stop its server first, or work on a copy of the directory"),
            "{complaint}"
        );
    }
}

#[test]
fn a_directory_that_is_not_there_is_not_made() {
    let temp = tempfile::tempdir().unwrap();
    let missing = temp.path().join("missing");
    for name in ["verify", "dump", "repair"] {
        let complaint = command(name, &missing, &[]).complained(2);
        assert!(complaint.starts_with("cannot open "), "{complaint}");
        assert!(complaint.contains("--data-dir"), "{complaint}");
        assert!(!missing.exists());
        // A directory without a log is most often the wrong one.
        let complaint = command(name, temp.path(), &[]).complained(2);
        assert!(complaint.starts_with("there is no log in "), "{complaint}");
    }
    assert!(files(temp.path()).is_empty());
}

#[test]
fn what_a_newer_version_wrote_is_not_repaired() {
    let dir = log();
    change(dir.path(), |bytes| {
        bytes[12] = 2;
        // The checksum covers the magic and what follows it.
        let mut covered = bytes[..8].to_vec();
        covered.extend_from_slice(&bytes[12..40]);
        bytes[8..12].copy_from_slice(&crc32c::crc32c(&covered).to_le_bytes());
    });
    assert_eq!(command("verify", dir.path(), &[]).code, Some(1));
    let complaint = command("repair", dir.path(), &["--accept-loss"]).complained(1);
    assert!(complaint.contains("version 2 of the format"), "{complaint}");
    assert!(complaint.ends_with("Start the version that wrote it."));
}

#[test]
fn help_teaches_how_to_get_out_of_it() {
    let help = run(["wal", "--help"]).printed();
    for word in ["verify", "dump", "repair", "--accept-loss", "Exit codes:"] {
        assert!(help.contains(word), "{word}");
    }
    for name in ["verify", "dump", "repair"] {
        let help = run(["wal", name, "--help"]).printed();
        assert!(help.contains("Exit codes: 0 "), "{help}");
    }
    let help = run(["wal", "repair", "--help"]).printed();
    for word in ["from a copy", "fences would come again", "--lease-max"] {
        assert!(help.contains(word), "{word}");
    }
    assert!(run(["--help"]).printed().contains("fencepost wal verify"));
}

#[test]
fn a_server_refuses_a_damaged_log_and_starts_above_its_fences_once_it_is_repaired() {
    let dir = log();
    damage(dir.path());
    let before = files(dir.path());
    let data_dir = format!("--data-dir={}", dir.path().display());
    let arguments = [
        "--listen=127.0.0.1:0",
        "--http=off",
        "--log-level=off",
        &data_dir,
    ];
    let ended = run(arguments);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for part in [
        "segment-0000000000000001.wal is damaged at offset",
        "fencepost wal verify",
        "fencepost wal repair",
    ] {
        assert!(ended.stderr.contains(part), "{part:?} in {ended:?}");
    }
    assert!(files(dir.path()) == before, "nothing was changed");

    command("repair", dir.path(), &["--accept-loss"]).printed();
    let server = Server::start(&[&data_dir, "--grace=off"]);
    let script = ["--", "sh", "-c", "echo $FENCEPOST_FENCE"];
    let lock = ["lock", "--server", &server.address, "orders/42"];
    let fence: u64 = run(lock.iter().chain(&script))
        .printed()
        .trim()
        .parse()
        .unwrap();
    assert!(fence > CEILING, "{fence}");
}
