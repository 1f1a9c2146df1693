//! Files as operators have them: good, expired, mixed up.

use super::issue::{Authority, Issued};
use super::*;
use std::time::{Duration, SystemTime};

fn identity(issued: &Issued) -> Result<Identity, TlsError> {
    Identity::read(&issued.cert, &issued.key)
}

fn server(issued: &Issued) -> Result<(), TlsError> {
    server_config(identity(issued)?, Clients::Unasked, VersionMin::Tls12).map(drop)
}

#[test]
fn the_host_of_an_address_is_what_a_certificate_must_name() {
    assert_eq!(host_of("locks.internal:7400"), "locks.internal");
    assert_eq!(host_of("127.0.0.1:7400"), "127.0.0.1");
    assert_eq!(host_of("[::1]:7400"), "::1");
    assert!(server_name("::1").is_some());
    assert!(server_name("not a name").is_none());
}

#[test]
fn names_and_the_end_of_a_certificate_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let issued = Authority::new(dir.path(), "ca").issue("billing");
    let facts = Facts::of(&identity(&issued).unwrap(), SystemTime::now()).unwrap();
    let names: Vec<&str> = facts.names.iter().collect();
    assert_eq!(names, ["urn:fencepost:billing", "localhost", "billing"]);
    let year_2100 = SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    assert_eq!(facts.not_after, year_2100);
}

#[test]
fn certificates_are_refused_outside_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let expired = identity(&authority.issue_expired("old")).unwrap();
    let sentence = Facts::of(&expired, SystemTime::now())
        .unwrap_err()
        .to_string();
    assert!(
        sentence.contains("expired at 2020-01-01T00:00:00Z"),
        "{sentence}"
    );
    let early = Facts::of(&expired, SystemTime::UNIX_EPOCH)
        .unwrap_err()
        .to_string();
    assert!(
        early.contains("only from 2019-01-01T00:00:00Z on"),
        "{early}"
    );
}

#[test]
fn what_is_wrong_with_files_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let (one, other) = (authority.issue("one"), authority.issue("other"));
    server(&one).unwrap();
    let complaint = |cert: &std::path::Path, key: &std::path::Path| {
        let issued = Issued {
            cert: cert.to_owned(),
            key: key.to_owned(),
        };
        server(&issued).unwrap_err().to_string()
    };
    let mixed = complaint(&one.cert, &other.key);
    assert!(mixed.contains("is not that of the certificate"), "{mixed}");
    let swapped = complaint(&one.key, &one.cert);
    assert!(
        swapped.contains("there is no certificate in it"),
        "{swapped}"
    );
    let twice = complaint(&one.cert, &one.cert);
    assert!(twice.contains("there is no private key in it"), "{twice}");
    let missing = complaint(&dir.path().join("none"), &one.key);
    assert!(missing.contains("cannot read"), "{missing}");
    std::fs::write(&other.cert, "-----BEGIN CERTIFICATE-----\n!\n").unwrap();
    let damaged = complaint(&other.cert, &other.key);
    assert!(damaged.contains("this is not PEM"), "{damaged}");
}

#[test]
fn a_handshake_is_known_by_its_first_bytes() {
    assert!(is_client_hello(&[0x16, 0x03, 0x01]));
    assert!(!is_client_hello(&[0x16]));
    assert!(may_be_client_hello(&[0x16]));
    assert!(!may_be_client_hello(b"GET"));
    assert!(!may_be_client_hello(b""));
}
