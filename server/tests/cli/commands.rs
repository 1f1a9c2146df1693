//! The commands that look at a server, and `release`.

use crate::program::{Held, Server, UNTIL_RELEASED, ask, end, fencepost, run};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What a command prints without `--json`.
#[track_caller]
fn shown(server: &Server, arguments: &[&str]) -> String {
    run(arguments.iter().chain(&["--server", &server.address])).printed()
}

/// The value in a line of the form `name  value`.
#[track_caller]
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("there is no {name} in {text}"))
        .trim()
}

#[test]
fn query_tells_who_holds_a_key() {
    let server = Server::start(&[]);
    assert_eq!(shown(&server, &["query", "k"]), "key    k\nstate  free\n");
    let held = Held::new(&server, &["k", "--note=nightly run"], UNTIL_RELEASED);

    let text = shown(&server, &["query", "k"]);
    assert_eq!(value(&text, "state "), "held");
    assert_eq!(value(&text, "fence "), held.fence.to_string());
    assert_eq!(value(&text, "queue "), "0 waiting");
    assert_eq!(value(&text, "note "), "nightly run");
    assert!(value(&text, "held for ").ends_with('s'), "{text}");

    let json = ask(&server, &["query", "k"]);
    assert_eq!(json["key"], "k");
    assert_eq!(json["holder_count"], 1);
    let holder = &json["holders"][0];
    assert_eq!(holder["fence"], held.fence);
    assert_eq!(holder["metadata"], "nightly run");
    assert_eq!(holder["is_shared"], false);
    assert!(holder["remaining_ms"].as_u64().unwrap() <= 30_000);
    assert_eq!(held.release(), Some(0));
}

#[test]
fn list_shows_what_is_held_in_order() {
    let server = Server::start(&[]);
    assert_eq!(shown(&server, &["list"]), "nothing is held\n");
    let held = ["jobs/b", "jobs/a", "other"].map(|key| Held::key(&server, key));

    let text = shown(&server, &["list"]);
    let keys: Vec<&str> = text
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(keys, ["KEY", "jobs/a", "jobs/b", "other"]);
    // The fences are numbers, so they end in the same column.
    let heading_ends = text.find("FENCE").unwrap() + "FENCE".len();
    for line in text.lines().skip(1) {
        assert!(
            line.is_char_boundary(heading_ends) && line.len() > heading_ends,
            "{text}"
        );
        assert_ne!(line.as_bytes()[heading_ends - 1], b' ', "{text}");
        assert_eq!(line.as_bytes()[heading_ends], b' ', "{text}");
    }

    let json = ask(&server, &["list", "jobs/"]);
    let keys: Vec<&str> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| lock["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["jobs/a", "jobs/b"]);
    assert_eq!(json[0]["holders"][0]["fence"], held[1].fence);
}

#[test]
fn a_key_that_is_no_text_is_escaped() {
    let server = Server::start(&[]);
    let key = OsStr::from_bytes(b"bin/\xff\x1b");
    let script = "fencepost() { \"$PROGRAM\" \"$@\" --server \"$ADDRESS\"; }; fencepost list && fencepost list --json";
    let ended = end(fencepost(["lock", "--server", &server.address])
        .arg(key)
        .args(["--", "sh", "-c", script])
        .env("PROGRAM", env!("CARGO_BIN_EXE_fencepost"))
        .env("ADDRESS", &server.address));
    let printed = ended.printed();
    let (table, json) = printed.trim_end().rsplit_once('\n').unwrap();
    assert!(
        table
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("bin/\\xff\\u{1b}  "),
        "{table}"
    );
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json[0]["key_hex"], "62696e2fff1b");
}

#[test]
fn sessions_tell_what_each_client_holds() {
    let server = Server::start(&[]);
    let held = Held::key(&server, "k");
    let sessions = ask(&server, &["sessions"]);
    let sessions = sessions.as_array().unwrap();
    // The oldest first; the other one is the question itself.
    assert_eq!(sessions.len(), 2);
    assert_eq!(sessions[0]["lock_count"], 1);
    assert_eq!(sessions[0]["waiter_count"], 0);
    assert!(
        sessions[0]["address"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
    let text = shown(&server, &["sessions"]);
    assert!(text.lines().next().unwrap().contains("CLIENT"), "{text}");
    assert!(text.ends_with("2 sessions, this one included\n"), "{text}");
    assert_eq!(held.release(), Some(0));
}

#[test]
fn stats_are_numbers_with_names() {
    let server = Server::start(&[]);
    let held = Held::key(&server, "k");
    let stats = ask(&server, &["stats"]);
    assert_eq!(stats["held"], 1);
    assert_eq!(stats["sessions"], 2);
    let text = shown(&server, &["stats"]);
    assert_eq!(value(&text, "held "), "1");
    assert_eq!(held.release(), Some(0));
}

#[test]
fn ping_says_who_answered() {
    let server = Server::start(&["--server-name=the test's own"]);
    let text = shown(&server, &["ping"]);
    assert!(text.contains(&server.address), "{text}");
    let json = ask(&server, &["ping"]);
    assert_eq!(json["server"], server.address);
    assert!(json["round_trip_us"].is_u64());
}

#[test]
fn release_takes_the_named_grant_and_no_other() {
    let server = Server::start(&[]);
    let held = Held::key(&server, "k");
    let release = |fence: u64, more: &[&str]| {
        let fence = fence.to_string();
        let arguments = [
            "release",
            "k",
            "--fence",
            &fence,
            "--server",
            &server.address,
        ];
        run(arguments.iter().chain(more))
    };
    // Without --force nothing is sent.
    assert!(release(held.fence, &[]).complained(1).contains("--force"));
    let complaint = release(held.fence - 1, &["--force"]).complained(1);
    assert!(complaint.contains("fencepost query"), "{complaint}");
    let ended = release(held.fence - 1, &["--force", "--json"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("\"released\":false"), "{ended:?}");
    assert_eq!(ask(&server, &["query", "k"])["holder_count"], 1);

    let text = release(held.fence, &["--force"]).printed();
    assert_eq!(text, format!("k is released from fence {}\n", held.fence));
    assert_eq!(held.end(), Some(143));
    assert_eq!(ask(&server, &["query", "k"])["holder_count"], 0);
}

#[test]
fn a_server_that_is_not_there_is_69_and_says_what_to_do() {
    for command in [
        &["ping"][..],
        &["list"],
        &["stats"],
        &["sessions"],
        &["query", "k"],
    ] {
        let complaint = run(command.iter().chain(&["--server=127.0.0.1:1"])).complained(69);
        assert!(
            complaint.starts_with("cannot reach 127.0.0.1:1: "),
            "{complaint}"
        );
        assert!(complaint.contains("Is the server running?"), "{complaint}");
    }
}

#[test]
fn the_address_may_come_from_the_environment() {
    let server = Server::start(&[]);
    let ended = end(fencepost(["ping"]).env("FENCEPOST_SERVER", &server.address));
    assert!(ended.printed().contains(&server.address));
}

#[test]
fn a_server_with_tokens_wants_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let known = file(
        "known",
        "# rotated in May\nan-old-token-of-ours\nthe-new-token-of-ours\n",
    );
    let unknown = file("unknown", "somebody-elses-token\n");
    let server = Server::start(&["--auth-token-file", &known]);
    let ping = ["ping", "--server", &server.address];

    assert!(run(ping).complained(77).contains("--token-file"));
    let shown_wrong = run(ping.iter().chain(&["--token-file", &unknown]));
    assert!(shown_wrong.complained(77).contains("token"));
    run(ping.iter().chain(&["--token-file", &known])).printed();
    let ended = end(fencepost(ping).env("FENCEPOST_TOKEN_FILE", &known));
    ended.printed();
    let missing = run(ping.iter().chain(&["--token-file", "/nowhere/token"]));
    assert!(missing.complained(2).contains("/nowhere/token"));
}

#[test]
fn several_addresses_are_asked_and_all_are_named_when_none_answers() {
    let server = Server::start(&[]);
    let list = format!("--server=127.0.0.1:1, {}", server.address);
    for command in [
        &["ping"][..],
        &["list"],
        &["query", "k"],
        &["lock", "k", "--", "true"],
    ] {
        let (name, rest) = command.split_first().expect("a command");
        let ended = run([name, &list.as_str()].into_iter().chain(rest));
        ended.printed();
    }
    let complaint = run(["ping", "--server=127.0.0.1:1,127.0.0.1:2"]).complained(69);
    assert!(
        complaint.starts_with("none of 2 addresses leads to a server: 127.0.0.1:1: "),
        "{complaint}"
    );
    assert!(
        complaint.contains("; 127.0.0.1:2: ") && complaint.contains("--server"),
        "{complaint}"
    );
}

#[test]
fn addresses_that_are_silent_share_the_time_to_answer() {
    let silent = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [first, second] = silent.each_ref().map(|at| at.local_addr().unwrap());
    let servers = format!("--server={first},{second}");
    for command in [
        &["ping", "--timeout=1s"][..],
        &["lock", "k", "--wait=1s", "--timeout=1s", "--", "true"],
    ] {
        let (name, rest) = command.split_first().expect("a command");
        let ended = run([name, &servers.as_str()].into_iter().chain(rest));
        let complaint = ended.complained(69);
        // Of all of them together, not of each.
        assert!(
            complaint.contains("took this client within 1"),
            "{complaint}"
        );
    }
}

/// One look over HTTP, as JSON.
fn get(address: &str, path: &str) -> serde_json::Value {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(crate::program::PATIENCE))
        .unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}

/// `--json` had neither `last_fence` nor `hold_count`.
#[test]
fn json_has_what_http_has() {
    let server = Server::start(&["--http=127.0.0.1:0"]);
    let log = server.log();
    let http = log
        .iter()
        .find(|event| event["message"] == "metrics, health and locks over HTTP");
    let http = http.unwrap()["address"].as_str().unwrap();
    let client = fencepost::blocking::Client::connect(&server.address).unwrap();
    let lock = || client.acquire(client.lock("k").reentrant().metadata(b"twice"));
    let (_one, _two) = (lock().unwrap(), lock().unwrap());

    let same = |shown: &serde_json::Value, http: &serde_json::Value| {
        for (name, value) in http.as_object().unwrap() {
            match name.as_str() {
                "holders" => {}
                // Time goes on between the two looks.
                "held_ms" | "remaining_ms" => assert!(shown[name].is_u64(), "{name}: {shown}"),
                _ => assert_eq!(&shown[name], value, "{name}: {shown}"),
            }
        }
    };
    let queried = ask(&server, &["query", "k"]);
    let listed = ask(&server, &["list"]);
    let looked = get(http, "/locks/k");
    assert_eq!(looked["holders"][0]["hold_count"], 2);
    for shown in [&queried, &listed[0]] {
        same(shown, &looked);
        same(&shown["holders"][0], &looked["holders"][0]);
    }
}
