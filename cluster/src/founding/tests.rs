use super::*;
use wal::forgetful::{Dice, FailKind, ForgetfulDisk, Keep};

fn is_marked(disk: &ForgetfulDisk) -> bool {
    disk.names().iter().any(|name| name == ADOPTED_FILE)
}

/// How many operations it takes to mark a directory.
fn operations() -> u64 {
    let disk = ForgetfulDisk::new();
    mark_adopted(&disk).unwrap();
    assert_eq!(disk.names(), [ADOPTED_FILE]);
    assert_eq!(disk.read(ADOPTED_FILE), ADOPTED_TEXT);
    disk.operations()
}

/// A disk that was full when the mark was written left an empty one: its server refused to start,
/// and the next try to adopt the directory said that a cluster had it.
#[test]
fn a_directory_that_could_not_be_marked_is_not_marked() {
    for operation in 0..operations() {
        for kind in [FailKind::Broken, FailKind::Full, FailKind::Late] {
            let disk = ForgetfulDisk::new();
            disk.fail_at(operation, kind);
            mark_adopted(&disk).unwrap_err();
            assert!(disk.names().is_empty(), "{operation}, {kind:?}");
            mark_adopted(&disk).unwrap();
            assert!(is_marked(&disk));
        }
    }
}

#[test]
fn a_mark_is_there_as_a_whole_or_not_at_all() {
    for keep in Keep::ALL {
        for operation in 0..operations() {
            let disk = ForgetfulDisk::new();
            disk.stop_at(operation);
            mark_adopted(&disk).unwrap_err();
            let after = disk.cut_power(keep, &mut Dice(operation));
            if is_marked(&after) {
                assert_eq!(after.read(ADOPTED_FILE), ADOPTED_TEXT, "{operation}");
            }
        }
        let disk = ForgetfulDisk::new();
        mark_adopted(&disk).unwrap();
        assert!(is_marked(&disk.cut_power(keep, &mut Dice(1))));
    }
}
