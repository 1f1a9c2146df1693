//! What is found is what a server would find, and nothing is touched.

use super::*;
use crate::log::Log;
use crate::tests::life::{Trail, live, options};
use disk::forgetful::{Dice, ForgetfulDisk};

#[test]
fn the_highest_ceiling_is_that_which_a_server_finds() {
    for seed in 1..5 {
        let disk = ForgetfulDisk::new();
        drop(live(&disk, &mut Trail::new(), &mut Dice(seed), 80).unwrap());
        let (names, changes) = (disk.names(), disk.changes());
        let highest = Highest::read_on(&disk).unwrap().unwrap();
        assert_eq!(disk.names(), names);
        assert_eq!(disk.changes(), changes);
        let (_, recovered) = Log::open(Arc::new(disk.clone()), &options(1)).unwrap();
        assert!(highest.ceiling > 0);
        assert_eq!(highest.ceiling, recovered.ceiling_max);
        // Both count from one time, or the fences of one would fall behind the other's.
        assert_eq!(highest.clock_unix_ms, recovered.last_wall_unix_ms);
    }
}

#[test]
fn without_a_log_there_is_none_and_a_damaged_one_is_an_error() {
    let disk = ForgetfulDisk::new();
    assert_eq!(Highest::read_on(&disk).unwrap(), Some(Highest::default()));
    let missing = Path::new("/nowhere/at/all");
    assert_eq!(Highest::read(missing).unwrap(), Some(Highest::default()));
    drop(live(&disk, &mut Trail::new(), &mut Dice(1), 80).unwrap());
    for name in disk.names() {
        if name.starts_with("segment-") {
            disk.lose(&name);
        }
    }
    assert!(matches!(Highest::read_on(&disk), Err(WalError::Replay(_))));
}

#[test]
fn what_another_server_is_writing_is_not_taken_for_damage() {
    let disk = ForgetfulDisk::new();
    let life = live(&disk, &mut Trail::new(), &mut Dice(1), 80).unwrap();
    assert!(Highest::read_on(&disk).unwrap().is_some());
    // As if they had been renamed between the listing and the reading.
    for name in disk.names() {
        if name.starts_with("segment-") {
            disk.lose(&name);
        }
    }
    assert_eq!(Highest::read_on(&disk).unwrap(), None);
    drop(life);
    assert!(Highest::read_on(&disk).is_err());
}
