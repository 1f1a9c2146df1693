//! The key is made once, outlasts every crash of the first start, and its loss is noticed.

use crate::error::WalError;
use crate::log::Log;
use crate::record::Record;
use crate::replay::recovered::Recovered;
use crate::tests::life::options;
use disk::forgetful::{Dice, ForgetfulDisk, Keep};

use super::*;
use std::sync::Arc;

/// Opens the log and makes a ceiling durable, as a server does before it grants anything.
fn serve(disk: &ForgetfulDisk) -> Result<Recovered, WalError> {
    let (mut log, recovered) = Log::open(Arc::new(disk.clone()), &options(1))?;
    let mut records = Vec::new();
    let ceiling = Record::Ceiling {
        shard: 0,
        fence: recovered.ceiling_max + 10,
    };
    ceiling.append_to(&mut records);
    log.commit(&mut records)?;
    Ok(recovered)
}

fn message(disk: &ForgetfulDisk) -> String {
    match serve(disk) {
        Ok(_) => panic!("it starts"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_key_has_these_bytes() {
    let disk = ForgetfulDisk::new();
    let mut key = SessionKey {
        bytes: [7; KEY_BYTES],
        is_kept: false,
    };
    key.keep(&disk).unwrap();
    let bytes = disk.read(KEY_FILE);
    assert_eq!(bytes[..KEY_BYTES], [7; KEY_BYTES]);
    assert_eq!(bytes[KEY_BYTES..], [0x31, 0x56, 0x65, 0xd6]);
    assert_eq!(disk.names(), [KEY_FILE]);
}

#[test]
fn a_key_is_found_again() {
    let disk = ForgetfulDisk::new();
    let first = serve(&disk).unwrap().session_key.bytes;
    let again = serve(&disk).unwrap().session_key.bytes;
    assert!(first == again);
    assert!(first != serve(&ForgetfulDisk::new()).unwrap().session_key.bytes);
}

/// One flipped bit, or the deletion of the file, made every session strange to its own server,
/// without a word.
#[test]
fn a_key_that_is_damaged_or_gone_is_missed() {
    let disk = ForgetfulDisk::new();
    serve(&disk).unwrap();
    let bytes = disk.read(KEY_FILE);
    for bit in 0..bytes.len() * 8 {
        let flipped = disk.kill();
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        flipped.tamper(KEY_FILE, damaged.clone());
        let message = message(&flipped);
        let start =
            "/forgetful/session.key is damaged at offset 0: its checksum does not match its bytes.";
        assert!(message.starts_with(start), "{message}");
        assert_eq!(flipped.read(KEY_FILE), damaged, "and it is left alone");
    }
    for length in (0..bytes.len() + 3).filter(|&length| length != bytes.len()) {
        let other = disk.kill();
        let mut damaged = bytes.clone();
        damaged.resize(length, 0);
        other.tamper(KEY_FILE, damaged);
        if length == KEY_BYTES {
            // What an earlier server wrote, and the same key.
            serve(&other).unwrap();
            continue;
        }
        let message = message(&other);
        let offset = length.min(FILE_BYTES);
        let start = format!("/forgetful/session.key is damaged at offset {offset}: it ");
        assert!(message.starts_with(&start), "{message}");
    }
    disk.lose(KEY_FILE);
    let message = message(&disk);
    assert!(
        message.starts_with("/forgetful/session.key is gone: "),
        "{message}"
    );
    assert!(
        message.contains("`fencepost wal repair /forgetful --accept-loss`"),
        "{message}"
    );
}

#[test]
fn a_key_without_a_checksum_is_believed_once_and_written_with_one() {
    let disk = ForgetfulDisk::new();
    let key = serve(&disk).unwrap().session_key;
    let whole = disk.read(KEY_FILE);
    let old = disk.kill();
    old.tamper(KEY_FILE, key.bytes.to_vec());
    let operations = {
        let disk = old.kill();
        assert!(serve(&disk).unwrap().session_key == key);
        assert_eq!(disk.read(KEY_FILE), whole);
        disk.operations()
    };
    for stop in 0..operations {
        for keep in Keep::ALL {
            let stopped = old.kill();
            stopped.stop_at(stop);
            assert!(serve(&stopped).is_err());
            let after = stopped.cut_power(keep, &mut Dice(stop));
            assert!(serve(&after).unwrap().session_key.bytes == key.bytes);
            assert_eq!(after.read(KEY_FILE), whole);
        }
    }
}

#[test]
fn a_first_start_that_crashed_anywhere_leaves_a_directory_that_a_server_starts_with() {
    let operations = {
        let disk = ForgetfulDisk::new();
        serve(&disk).unwrap();
        disk.operations()
    };
    for stop in 0..operations {
        for keep in Keep::ALL {
            for seed in 0..8 {
                let disk = ForgetfulDisk::new();
                disk.stop_at(stop);
                assert!(serve(&disk).is_err());
                let after = disk.cut_power(keep, &mut Dice(stop * 8 + seed));
                let key = serve(&after).unwrap().session_key;
                assert!(serve(&after).unwrap().session_key.bytes == key.bytes);
                serve(&disk.kill()).unwrap();
            }
        }
    }
}
