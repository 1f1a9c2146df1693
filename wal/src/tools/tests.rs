//! What operators see.

use super::*;
use crate::tests::life::{Trail, live};
use crate::{Lease, Options, Scope, open as open_log};
use disk::forgetful::{Dice, ForgetfulDisk};

/// Everything that a dump shows, as people see it.
fn text_of(disk: &dyn Disk) -> (String, Option<ReplayError>) {
    let mut text = String::new();
    let damage = dump_on(disk, &mut |entry| {
        text += &format!("{entry}\n");
        Ok(())
    });
    (text, damage.unwrap())
}

#[test]
fn times_are_read_by_people() {
    for (unix_ms, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399_999, "2000-02-28T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (951_868_800_000, "2000-03-01T00:00:00.000Z"),
        (1_700_000_000_001, "2023-11-14T22:13:20.001Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (1_767_225_599_000, "2025-12-31T23:59:59.000Z"),
    ] {
        assert_eq!(Utc(unix_ms).to_string(), text);
    }
    // Whatever was written, it is printed.
    assert!(Utc(u64::MAX - 1).to_string().ends_with('Z'));
    assert_eq!(Utc(u64::MAX).to_string(), "never");
}

#[test]
fn a_dump_has_a_line_for_every_record() {
    let temp = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 64 << 10,
        ..Options::new(Scope::Leases, 1_700_000_000_000)
    };
    let (opened, _) = open_log(temp.path(), &options).unwrap();
    let wal = opened.start(()).unwrap();
    let ceiling = Record::Ceiling {
        shard: 3,
        fence: 99,
    };
    wal.wait(wal.append(&ceiling)).unwrap();
    for record in [
        Record::SessionOpened {
            session: 0x1f,
            ttl_ms: 30_000,
            deadline_unix_ms: 1_700_000_030_000,
            name: b"app \"1\"",
        },
        Record::Granted(Lease {
            key: b"orders/\xff",
            fence: 42,
            session: 0x1f,
            mode: types::Mode::Exclusive,
            is_session_bound: true,
            count: 1,
            until_unix_ms: 1_700_000_030_000,
            granted_unix_ms: 1_700_000_000_500,
            note: b"",
        }),
        Record::Released {
            key: b"orders/\xff",
            fence: 42,
            count_left: 0,
        },
    ] {
        wal.append(&record);
    }
    wal.close(1_700_000_060_000).unwrap();

    let (out, damage) = text_of(&log::open_dir(temp.path()).unwrap());
    assert!(damage.is_none());
    let lines: Vec<&str> = out
        .lines()
        .map(|line| {
            line.strip_prefix("segment-0000000000000001.wal ")
                .unwrap()
                .trim_start()
        })
        .collect();
    assert_eq!(
        lines,
        [
            "4096 started 2023-11-14T22:13:20.000Z writing down leases",
            "4126 ceiling shard=3 fence=99",
            "4157 session-opened 0x1f ttl=30000ms until=2023-11-14T22:13:50.000Z name=\"app \\\"1\\\"\"",
            "4205 granted key=\"orders/\\xff\" fence=42 session=0x1f exclusive session-bound count=1 \
             since=2023-11-14T22:13:20.500Z until=2023-11-14T22:13:50.000Z note=\"\"",
            "4273 released key=\"orders/\\xff\" fence=42 left=0",
            "4314 clean-stop 2023-11-14T22:14:20.000Z",
        ]
    );

    let report = verify(temp.path()).unwrap();
    let text = report.to_string();
    assert!(text.contains("sound: 6 records"), "{text}");
    assert!(text.contains("stopped in good order"), "{text}");
    assert!(text.contains("highest ceiling  99"), "{text}");
    assert_eq!(report.files[0].records, 6);
}

#[test]
fn tools_do_not_touch_a_directory_that_is_in_use_nor_make_one() {
    let temp = tempfile::tempdir().unwrap();
    let (_opened, _) = open_log(temp.path(), &Options::new(Scope::Fences, 1)).unwrap();
    assert!(matches!(verify(temp.path()), Err(WalError::Locked { .. })));
    let locked = dump(temp.path(), &mut |_| Ok(()));
    assert!(matches!(locked, Err(WalError::Locked { .. })));
    let missing = temp.path().join("missing");
    assert!(verify(&missing).is_err());
    assert!(!missing.exists());
}

#[test]
fn looking_changes_nothing_and_shows_damage() {
    let disk = ForgetfulDisk::new();
    let life = live(&disk, &mut Trail::new(), &mut Dice(3), 60).unwrap();
    drop(life);
    let disk = disk.kill();
    let segment = |name: &&String| name.starts_with("segment");
    let name = disk.names().iter().find(segment).unwrap().clone();
    let mut bytes = disk.read(&name);
    bytes[4096 + 40] ^= 1;
    disk.tamper(&name, bytes);
    let before: Vec<Vec<u8>> = disk.names().iter().map(|name| disk.read(name)).collect();

    let report = verify_on(&disk).unwrap();
    assert!(report.outcome.is_err());
    let text = report.to_string();
    assert!(text.contains("NOT SOUND: /forgetful/segment-"), "{text}");
    let (out, damage) = text_of(&disk);
    assert!(damage.is_some());
    let rest = out
        .split_once("-- whole records, wherever they are:\n")
        .unwrap()
        .1;
    assert!(rest.lines().count() > 20, "{rest}");

    let after: Vec<Vec<u8>> = disk.names().iter().map(|name| disk.read(name)).collect();
    assert_eq!(before, after);
    assert_eq!(disk.changes(), 0);
}

#[test]
fn an_output_that_fails_is_reported() {
    let disk = ForgetfulDisk::new();
    drop(live(&disk, &mut Trail::new(), &mut Dice(3), 5).unwrap());
    let mut calls = 0;
    let dumped = dump_on(&disk, &mut |_| {
        calls += 1;
        Err(io::Error::from(io::ErrorKind::BrokenPipe))
    });
    assert!(matches!(dumped, Err(WalError::Io(_))));
    assert_eq!(calls, 1);
}

#[test]
fn a_dump_shows_what_a_crash_cut_short() {
    let disk = ForgetfulDisk::new();
    drop(live(&disk, &mut Trail::new(), &mut Dice(3), 5).unwrap());
    let disk = disk.kill();
    let (whole, _) = text_of(&disk);
    let last = whole.lines().last().unwrap();
    let mut words = last.split_ascii_whitespace();
    let (name, offset) = (words.next().unwrap(), words.next().unwrap());
    let offset: usize = offset.parse().unwrap();
    let mut bytes = disk.read(name);
    bytes[offset + 21] ^= 1;
    disk.tamper(name, bytes);

    let (torn, damage) = text_of(&disk.kill());
    assert!(damage.is_none());
    let (records, torn) = torn.rsplit_once("-- ").unwrap();
    assert_eq!(records.lines().count() + 1, whole.lines().count());
    assert!(torn.starts_with("a write was cut short"), "{torn}");
    assert!(torn.contains(&format!("at offset {offset}, where its checksum")));
}

/// The directory of node 7 of a cluster, and the offset of its vote.
fn node_dir() -> (tempfile::TempDir, Options, usize) {
    let temp = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 64 << 10,
        ..Options::new(Scope::Leases, 1_700_000_000_000)
    };
    let (opened, _) = crate::open_node(temp.path(), &options).unwrap();
    let wal = opened.start(()).unwrap();
    let vote = Record::Vote {
        group: 0,
        term: 3,
        node: 7,
        is_committed: true,
    };
    for record in [Record::NodeIs { node: 7, disk: 1 }, vote] {
        wal.wait(wal.append(&record)).unwrap();
    }
    wal.close(1_700_000_060_000).unwrap();
    let (out, _) = text_of(&log::open_dir(temp.path()).unwrap());
    let vote = out.lines().nth(2).unwrap();
    let offset = vote.split_ascii_whitespace().nth(1).unwrap();
    let offset = offset.parse().unwrap();
    (temp, options, offset)
}

#[test]
fn the_directory_of_a_node_is_called_one_and_is_never_repaired() {
    let (temp, options, vote) = node_dir();
    let dir = temp.path().display().to_string();
    let wish = repair::Repair {
        accept_loss: true,
        now_unix_ms: 1_700_000_500_000,
        lease_ms_max: 1,
    };
    let is_refused = || {
        let refused = repair::repair(temp.path(), &wish);
        assert!(
            matches!(refused, Err(repair::RepairError::OfACluster { .. })),
            "{refused:?}"
        );
    };

    let text = verify(temp.path()).unwrap().to_string();
    assert!(text.contains("sound: 4 records"), "{text}");
    assert!(text.contains("belongs to node 7 of a cluster"), "{text}");
    assert!(!text.contains("NOT SOUND"), "{text}");
    let error = open_log(temp.path(), &options).err().unwrap().to_string();
    let belongs = format!("{dir} belongs to a node of a cluster");
    assert!(error.starts_with(&belongs), "{error}");
    assert!(!error.contains("wal repair"), "{error}");
    is_refused();

    let segment = temp.path().join("segment-0000000000000001.wal");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[vote + 21] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let text = verify(temp.path()).unwrap().to_string();
    assert!(text.contains("NOT SOUND"), "{text}");
    assert!(text.contains("fencepost cluster remove"), "{text}");
    assert!(!text.contains("wal repair"), "{text}");
    is_refused();
    assert!(segment.exists());
}

/// A flipped bit in a file that no node reads had its operator take the node out of the cluster.
#[test]
fn a_node_needs_the_key_of_no_directory() {
    let (temp, options, _) = node_dir();
    let key = temp.path().join("session.key");
    let whole = std::fs::read(&key).unwrap();
    let [mut flipped, mut short] = [(); 2].map(|()| whole.clone());
    flipped[3] ^= 1;
    short.truncate(7);
    for damaged in [flipped, short] {
        std::fs::write(&key, &damaged).unwrap();
        let text = verify(temp.path()).unwrap().to_string();
        assert!(!text.contains("NOT SOUND"), "{text}");
        let (opened, log) = crate::open_node(temp.path(), &options).unwrap();
        assert_eq!(log.node, Some((7, 1)));
        opened.start(()).unwrap().close(1_700_000_070_000).unwrap();
        assert_eq!(std::fs::read(&key).unwrap(), damaged, "it is left alone");
    }
    // It is the mark of a directory that was used, and is made again.
    std::fs::remove_file(&key).unwrap();
    let (opened, _) = crate::open_node(temp.path(), &options).unwrap();
    opened.start(()).unwrap().close(1_700_000_080_000).unwrap();
    assert_eq!(std::fs::read(&key).unwrap().len(), whole.len());
}

#[test]
fn the_directory_of_a_single_server_is_named_to_a_node_and_nothing_is_advised_against_it() {
    let temp = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 64 << 10,
        ..Options::new(Scope::Leases, 1_700_000_000_000)
    };
    let (opened, _) = open_log(temp.path(), &options).unwrap();
    let wal = opened.start(()).unwrap();
    let ceiling = Record::Ceiling { shard: 0, fence: 9 };
    wal.wait(wal.append(&ceiling)).unwrap();
    wal.close(1_700_000_060_000).unwrap();

    let error = crate::open_node(temp.path(), &options).err().unwrap();
    let error = error.to_string();
    let dir = temp.path().display();
    let belongs = format!("{dir} belongs to a single server");
    assert!(error.starts_with(&belongs), "{error}");
    assert!(
        error.contains(&format!("fencepost cluster adopt {dir}")),
        "{error}"
    );
    assert!(!error.contains("wal repair"), "{error}");
}

/// The operator of a server's only copy was told that other nodes have what it had, and to go on
/// with an empty directory.
#[test]
fn a_node_that_finds_damage_gives_up_only_what_is_surely_a_nodes() {
    let options = Options {
        segment_bytes: 64 << 10,
        ..Options::new(Scope::Leases, 1_700_000_000_000)
    };
    // What a node says of a directory with one flipped bit in the record on this line of its dump.
    let flipped = |dir: &Path, line: usize| {
        let (out, _) = text_of(&log::open_dir(dir).unwrap());
        let words: Vec<&str> = out.lines().nth(line).unwrap().split_whitespace().collect();
        let (file, offset) = (dir.join(words[0]), words[1].parse::<usize>().unwrap());
        let whole = std::fs::read(&file).unwrap();
        let mut bytes = whole.clone();
        bytes[offset + 21] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let error = crate::open_node(dir, &options).err().unwrap().to_string();
        std::fs::write(&file, whole).unwrap();
        error
    };
    let temp = tempfile::tempdir().unwrap();
    let (opened, _) = open_log(temp.path(), &options).unwrap();
    let wal = opened.start(()).unwrap();
    for fence in [9, 10] {
        let ceiling = Record::Ceiling { shard: 0, fence };
        wal.wait(wal.append(&ceiling)).unwrap();
    }
    wal.close(1_700_000_060_000).unwrap();
    let (node, _, _) = node_dir();
    for (dir, line, of_node, of_server) in [
        (temp.path(), 1, true, true),
        (temp.path(), 2, false, true),
        (node.path(), 1, true, true),
        (node.path(), 2, true, false),
    ] {
        let error = flipped(dir, line);
        let damaged = format!("{}/segment-0000000000000001.wal is damaged", dir.display());
        assert!(error.starts_with(&damaged), "{error}");
        assert!(error.contains("Nothing was changed."), "{error}");
        assert_eq!(error.contains("cluster remove"), of_node, "{error}");
        assert_eq!(error.contains("wal repair"), of_server, "{error}");
        assert_eq!(error.contains("a single server"), of_server, "{error}");
    }
}
