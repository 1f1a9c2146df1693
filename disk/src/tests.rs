//! The two disks: that the real one locks, and that the forgetful one forgets.

use super::forgetful::{Dice, FailKind, ForgetfulDisk, Keep};
use super::*;

#[test]
fn a_second_lock_on_the_same_directory_is_refused_until_the_first_is_gone() {
    let temp = tempfile::tempdir().unwrap();
    let disk = DirDisk::open_or_create(&temp.path().join("data")).unwrap();
    let other = DirDisk::open(&temp.path().join("data")).unwrap();
    let lock = disk.lock().unwrap();
    assert!(lock.is_some());
    assert!(other.lock().unwrap().is_none());
    assert!(disk.lock().unwrap().is_none());
    drop(lock);
    assert!(other.lock().unwrap().is_some());
}

#[test]
fn both_disks_do_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let real = DirDisk::open_or_create(&temp.path().join("a/b")).unwrap();
    let forgetful = ForgetfulDisk::new();
    for disk in [&real as &dyn Disk, &forgetful] {
        let file = disk.create("one", 10_000).unwrap();
        assert_eq!(file.bytes().unwrap(), 10_000);
        file.write_at(b"words and more", 9_998).unwrap();
        assert_eq!(file.bytes().unwrap(), 10_012);
        file.shorten(10_003).unwrap();
        assert_eq!(file.bytes().unwrap(), 10_003);
        file.sync_data().unwrap();
        disk.rename("one", "two").unwrap();
        disk.create("three", 0).unwrap();
        disk.sync_dir().unwrap();
        let mut names = disk.list().unwrap();
        names.sort();
        assert_eq!(names, ["three", "two"]);
        disk.remove("three").unwrap();
        let mut bytes = [1; 5];
        let file = disk.open_read("two").unwrap();
        file.read_at(&mut bytes, 9_996).unwrap();
        assert_eq!(&bytes, b"\0\0wor");
        let error = file.read_at(&mut bytes, 10_000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(disk.open_write("one").is_err());
        assert!(disk.rename("one", "four").is_err());
        assert!(disk.remove("one").is_err());
    }
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_any_of_the_rest() {
    let disk = ForgetfulDisk::new();
    let file = disk.create("log", 4096).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir().unwrap();
    file.write_at(&[1; 512], 0).unwrap();
    file.sync_data().unwrap();
    file.write_at(&[2; 1536], 0).unwrap();
    disk.rename("log", "new").unwrap();

    let dice = &mut Dice(7);
    let nothing = disk.cut_power(Keep::Nothing, dice);
    assert_eq!(nothing.names(), ["log"]);
    assert_eq!(nothing.read("log")[..1024], [[1; 512], [0; 512]].concat());
    let everything = disk.cut_power(Keep::Everything, dice);
    assert_eq!(everything.read("new")[..1536], [2; 1536]);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let some = disk.cut_power(Keep::Some, dice);
        let name = some.names().remove(0);
        let bytes = some.read(&name);
        seen.insert((name, bytes[0], bytes[512], bytes[1024]));
    }
    assert_eq!(
        seen.len(),
        16,
        "every combination of three sectors and a name"
    );
}

#[test]
fn after_a_failed_sync_the_cache_lies() {
    let disk = ForgetfulDisk::new();
    let file = disk.create("log", 512).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir().unwrap();
    disk.fail_at(disk.operations() + 1, FailKind::Broken);
    file.write_at(b"lost", 0).unwrap();
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
    file.sync_data().unwrap();
    assert_eq!(disk.kill().read("log")[..4], *b"lost");
    let after = disk.kill().cut_power(Keep::Everything, &mut Dice(1));
    assert_eq!(after.read("log")[..4], [0; 4]);
}

#[test]
fn a_file_that_grew_ends_anywhere_after_a_power_cut() {
    let disk = ForgetfulDisk::new();
    let file = disk.create("log", 0).unwrap();
    file.write_at(&[1; 3], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir().unwrap();
    file.write_at(&[2; 2], 3).unwrap();
    let dice = &mut Dice(3);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        seen.insert(disk.cut_power(Keep::Torn, dice).read("log"));
    }
    let expected: [&[u8]; 6] = [
        &[1, 1, 1],
        &[1, 1, 1, 0],
        &[1, 1, 1, 0, 0],
        &[1, 1, 1, 2],
        &[1, 1, 1, 2, 0],
        &[1, 1, 1, 2, 2],
    ];
    assert_eq!(seen.iter().map(Vec::as_slice).collect::<Vec<_>>(), expected);
}

#[test]
fn what_was_cut_off_may_come_back_until_it_is_synced() {
    let disk = ForgetfulDisk::new();
    let file = disk.create("log", 1000).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir().unwrap();
    file.shorten(100).unwrap();
    let dice = &mut Dice(5);
    let length = |keep, dice: &mut Dice| disk.cut_power(keep, dice).read("log").len();
    assert_eq!(length(Keep::Nothing, dice), 1000);
    assert_eq!(length(Keep::Everything, dice), 100);
    let any: std::collections::BTreeSet<usize> =
        (0..50).map(|_| length(Keep::Some, dice)).collect();
    assert_eq!(any, [100, 1000].into());
    file.sync_data().unwrap();
    assert_eq!(length(Keep::Nothing, dice), 100);
}

#[test]
fn a_mount_point_is_on_the_same_file_system_and_above() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("not/there");
    let at = mount_point(&missing);
    assert!(directory.path().canonicalize().unwrap().starts_with(&at));
    assert_eq!(mount_point(Path::new("/")), Path::new("/"));
    let proc = mount_point(Path::new("/proc/self"));
    assert_eq!(proc, Path::new("/proc"));
}
