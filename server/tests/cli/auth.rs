//! Files of rights, and the end of a session, from the command line.

use crate::program::{Ended, Server, end, fencepost, run};
use std::fs::File;
use std::path::Path;

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// `auth hash` with this on its standard input.
fn hash_input(input: &str) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "token", input);
    end(fencepost(["auth", "hash"]).stdin(File::open(file).unwrap()))
}

/// The SHA-256 of a token.
pub(crate) fn hash(token: &str) -> String {
    hash_input(token).printed().trim_end().to_owned()
}

#[test]
fn a_file_of_rights_is_checked_with_the_line_of_each_mistake() {
    let directory = tempfile::tempdir().unwrap();
    let sha256 = hash("the-token-of-orders\n");
    assert_eq!(sha256.len(), 64, "{sha256}");
    assert_eq!(sha256, hash("  the-token-of-orders"), "spaces do not count");
    let text = format!(
        "[[token]]\nname = \"orders\"\nsha256 = \"{sha256}\"\nroles = [\"lock\", \"read\"]\nprefixes = [\"orders/\"]\nheld_max = 7\n"
    );
    let good = write(directory.path(), "good.toml", &text);
    let said = run(["auth", "check", &good]).printed();
    assert_eq!(
        said,
        "orders (a token) may lock, read keys that begin with [\"orders/\"]; at most 7 locks held or waited for\n"
    );
    let json = run(["auth", "check", "--json", &good]).printed();
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json[0]["roles"][1], "read");
    assert_eq!(json[0]["held_max"], 7);

    let bad = write(
        directory.path(),
        "bad.toml",
        &format!("{text}helt_max = 8\n"),
    );
    let complaint = run(["auth", "check", &bad]).complained(2);
    assert!(
        complaint.contains("bad.toml:7: unknown field `helt_max`"),
        "{complaint}"
    );
    let refused = run([
        "serve",
        "--check-config",
        "--durability",
        "none",
        "--auth-file",
        &bad,
    ]);
    assert!(refused.complained(2).contains("bad.toml:7: "));
    assert!(hash_input("short").complained(2).contains("16 to 256"));
}

#[test]
fn a_session_is_ended_by_an_operator_and_by_no_one_else() {
    let directory = tempfile::tempdir().unwrap();
    let token = |name: &str| format!("the-token-of-{name}");
    let entry = |name: &str, roles: &str| {
        let sha256 = hash(&token(name));
        format!("[[token]]\nname = \"{name}\"\nsha256 = \"{sha256}\"\nroles = [{roles}]\n")
    };
    let rights = entry("ops", "\"operate\", \"read\"") + &entry("orders", "\"lock\", \"read\"");
    let rights = write(directory.path(), "rights.toml", &rights);
    let server = Server::start(&["--auth-file", &rights]);
    let as_name = |name: &str| write(directory.path(), name, &token(name));
    let (ops, orders) = (as_name("ops"), as_name("orders"));
    let flags = |file: &str| {
        let server = format!("--server={}", server.address);
        [server, format!("--token-file={file}")]
    };
    let ask = |file: &str, command: &[&str]| {
        let flags = flags(file);
        run(command
            .iter()
            .copied()
            .chain(flags.iter().map(|flag| &**flag)))
    };
    let complaint = ask(&orders, &["session", "end", "4711"]).complained(77);
    assert!(
        complaint.contains("\"orders\" does not have the role operate"),
        "{complaint}"
    );
    let complaint = ask(&ops, &["session", "end", "4711"]).complained(1);
    assert!(
        complaint.contains("there is no session 4711"),
        "{complaint}"
    );
    let complaint = ask(&orders, &["release", "k", "--fence=1", "--force"]).complained(77);
    assert!(
        complaint.contains("\"orders\" does not have the role operate"),
        "{complaint}"
    );
    let said = ask(&ops, &["session", "end", "4711", "--json"]);
    assert_eq!(said.code, Some(1));
}
