//! Settings from flags, the environment and a file.

use crate::program::{Server, await_condition, end, fencepost, run};
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// A file of this text, and the directory that keeps it.
fn file(text: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fencepost.toml");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

/// The value of a setting in what `--print-config` prints, and where it says it came from.
fn printed<'a>(toml: &'a str, name: &str) -> (&'a str, &'a str) {
    let line = toml
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} = ")));
    let (value, origin) = line.unwrap().rsplit_once("# ").unwrap();
    (value.trim_end(), origin)
}

#[test]
fn a_misspelt_flag_is_one_line_that_knows_better() {
    for arguments in [&["--lissten", "127.0.0.1:1"][..], &["serve", "--lissten=x"]] {
        let complaint = run(arguments).complained(2);
        assert!(complaint.contains("'--lissten'"), "{complaint}");
        assert!(complaint.contains("'--listen'"), "{complaint}");
    }
}

#[test]
fn a_bad_value_is_one_line_wherever_it_stands() {
    let complaint = run(["--session-ttl=soon"]).complained(2);
    assert!(
        complaint.starts_with("--session-ttl: \"soon\" is not a time"),
        "{complaint}"
    );

    let complaint = end(fencepost(["serve"]).env("FENCEPOST_KEYS_MAX", "many")).complained(2);
    assert!(
        complaint.starts_with("FENCEPOST_KEYS_MAX: \"many\" is not"),
        "{complaint}"
    );

    let (_directory, path) = file("# ours\nthreads = 100_000\n");
    let complaint = run(["--config", path.to_str().unwrap()]).complained(2);
    let place = format!("{}:2: threads: 100000 is out of range", path.display());
    assert!(complaint.starts_with(&place), "{complaint}");
}

#[test]
fn an_unknown_key_in_the_file_is_named_with_its_line() {
    let (_directory, path) = file("pin = false\nlisten_on = \"127.0.0.1:1\"\n");
    let complaint = run(["--config", path.to_str().unwrap()]).complained(2);
    let place = format!("{}:2: there is no setting \"listen_on\"", path.display());
    assert!(complaint.starts_with(&place), "{complaint}");
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_one_line() {
    let complaint = run(["--config", "/nowhere/fencepost.toml"]).complained(2);
    assert!(complaint.contains("/nowhere/fencepost.toml"), "{complaint}");
    let (_directory, path) = file("listen = 127.0.0.1:7400\n");
    let complaint = run(["--config", path.to_str().unwrap()]).complained(2);
    assert!(complaint.contains(":1: this is not TOML"), "{complaint}");
}

#[test]
fn flags_come_before_environment_before_file_before_defaults() {
    let (_directory, path) = file("threads = 1\nshards = 8\nidle = \"1m\"\n");
    let toml = end(fencepost(["serve", "--print-config", "--threads=3"])
        .env("FENCEPOST_CONFIG", &path)
        .env("FENCEPOST_THREADS", "2")
        .env("FENCEPOST_SHARDS", "16"))
    .printed();
    assert_eq!(printed(&toml, "threads"), ("3", "--threads"));
    assert_eq!(printed(&toml, "shards"), ("16", "FENCEPOST_SHARDS"));
    let line = format!("{}:3", path.display());
    assert_eq!(printed(&toml, "idle"), ("\"1m\"", line.as_str()));
    assert_eq!(printed(&toml, "listen"), ("\"127.0.0.1:7400\"", "default"));
}

#[test]
fn printed_settings_can_be_fed_back() {
    let chosen = [
        "--pin",
        "--http=off",
        "--bytes-max=1.5GiB",
        "--audit-log=a # \"b\"",
    ];
    let toml = run(["--print-config"].iter().chain(&chosen)).printed();
    let (_directory, path) = file(&toml);
    let again = run(["--print-config", "--config", path.to_str().unwrap()]).printed();
    let values = |toml: &str| -> Vec<String> {
        let lines = toml.lines().filter(|line| line.contains(" = "));
        lines
            .map(|line| line.rsplit_once("# ").unwrap().0.trim_end().to_owned())
            .collect()
    };
    assert_eq!(values(&again), values(&toml));
    assert_eq!(printed(&again, "bytes_max").0, "\"1536MiB\"");
}

#[test]
fn good_settings_are_ok_and_nothing_is_started() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", directory.path().join("data").display());
    let free = ["--listen=127.0.0.1:0", "--http=127.0.0.1:0", &data_dir];
    for check in [&["--check-config"][..], &["serve", "--check-config"]] {
        assert_eq!(run(check.iter().chain(&free)).printed(), "ok\n");
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

/// The check once looked at the settings only and said "ok", and the start that followed failed.
#[test]
fn a_check_finds_what_a_start_would() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--listen={}", taken.local_addr().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", directory.path().display());
    for (arguments, code, word) in [
        ([taken.as_str(), "--audit-log=off"], 71, "cannot listen on"),
        (
            ["--listen=127.0.0.1:0", "--audit-log=/nowhere/audit.log"],
            1,
            "/nowhere/audit.log",
        ),
    ] {
        for check in [&["serve", "--check-config"][..], &["serve"]] {
            let always = ["--http=off", "--log-level=off", &data_dir];
            let complaint = run(check.iter().chain(&arguments).chain(&always)).complained(code);
            assert!(complaint.contains(word), "{complaint}");
        }
    }
}

#[test]
fn an_address_others_can_reach_is_refused_without_tokens() {
    for flag in ["--listen=0.0.0.0:7400", "--http=[::]:7401"] {
        let complaint = run([flag]).complained(2);
        assert!(complaint.contains("--auth-token-file"), "{complaint}");
    }
    let (_directory, path) = file("a-token-that-is-long-enough\n");
    let tokens = format!("--auth-token-file={}", path.display());
    let always = ["--check-config", "--listen=0.0.0.0:0", "--http=off"];
    let checked = run(always
        .iter()
        .chain([&"--durability=none", &tokens.as_str()]));
    assert_eq!(checked.printed(), "ok\n");
}

#[test]
fn tokens_that_cannot_be_read_are_a_bad_setting() {
    let arguments = [
        "--auth-token-file=/nowhere/tokens",
        "--listen=127.0.0.1:0",
        "--http=off",
    ];
    for check in [&["--check-config"][..], &[]] {
        let complaint = run(check.iter().chain(&arguments)).complained(2);
        assert!(complaint.contains("/nowhere/tokens"), "{complaint}");
    }
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let first = Server::start(&[]);
    let data_dir = format!("--data-dir={}", first.data.path().display());
    let arguments = ["--listen=127.0.0.1:0", "--http=off", "--log-level=off"];
    let complaint = run(arguments.iter().chain([&data_dir.as_str()])).complained(2);
    assert!(complaint.contains("another server is using"), "{complaint}");
}

#[test]
fn a_directory_that_cannot_be_made_is_one_line() {
    let arguments = [
        "--listen=127.0.0.1:0",
        "--http=off",
        "--log-level=off",
        "--data-dir=/dev/null/data",
    ];
    let complaint = run(arguments).complained(2);
    assert!(complaint.contains("/dev/null/data"), "{complaint}");
}

#[test]
fn help_teaches_and_goes_to_standard_output() {
    let help = run(["--help"]).printed();
    for word in ["serve", "Examples:", "Exit codes:", "75"] {
        assert!(help.contains(word), "{word}");
    }
    let help = run(["serve", "--help"]).printed();
    for word in [
        "--session-ttl <TIME>",
        "[default: 10s]",
        "FENCEPOST_SESSION_TTL",
    ] {
        assert!(help.contains(word), "{word}");
    }
    assert!(run(["--version"]).printed().starts_with("fencepost "));
}

/// The line is the same when the server was stopped in order meanwhile: that did not end the wait.
#[test]
fn a_start_that_has_to_wait_says_for_how_long_why_and_how_to_avoid_it() {
    let data = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", data.path().display());
    let server = Server::start(&[&data_dir]);
    let lock = ["lock", "k", "--detach", "--ttl=20s"];
    run(lock.iter().chain(&["--server", &server.address])).printed();
    server.end_by(Signal::KILL);
    for signal in [Signal::TERM, Signal::KILL] {
        let server = Server::start(&[&data_dir]);
        let lines = server.log();
        let lines = lines.iter().filter_map(|line| line["message"].as_str());
        let wait = lines.filter_map(|line| line.strip_prefix("no new locks for "));
        let wait: Vec<&str> = wait.collect();
        let [line] = wait[..] else {
            panic!("not one line but {wait:?}");
        };
        let (time, rest) = line.split_once(": ").expect("it goes on");
        let time = humantime::parse_duration(time).expect("a time for people");
        assert!(time <= Duration::from_secs(30), "{line}");
        for word in [
            "stopped without notice",
            "Holders may claim theirs",
            "--grace-max",
            "--durability lease",
            "--grace off",
        ] {
            assert!(rest.contains(word), "{word} is not in: {line}");
        }
        server.end_by(signal);
    }
}

#[test]
fn a_signal_ends_the_server_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let ended = Server::start(&[]).end_by(signal);
        assert_eq!(ended.code(), Some(0), "{signal:?}: {ended:?}");
    }
}

/// SIGHUP ended the server without a line. Now there is one for each thing that was read again.
#[test]
fn a_hang_up_says_what_was_read_again() {
    let (directory, path) = file("the-first-token-is-long-enough\n");
    let audit_log = directory.path().join("audit.log");
    let tokens = format!("--auth-token-file={}", path.display());
    let audit_log = format!("--audit-log={}", audit_log.display());
    let server = Server::start(&[&tokens, &audit_log]);
    let line = |begin: &str| {
        let mut lines = server.log().into_iter();
        lines.find(|line| {
            let message = line["message"].as_str();
            message.is_some_and(|message| message.starts_with(begin))
        })
    };
    let both = "the-first-token-is-long-enough\nthe-second-token-is-too\n";
    std::fs::write(&path, both).unwrap();
    server.send(Signal::HUP);
    await_condition(|| line("audit log opened again: ").is_some());
    let tokens = line("tokens and rights read again").expect("they are read first");
    assert_eq!((&tokens["added"], &tokens["count"]), (&1.into(), &2.into()));
    assert_eq!(server.end_by(Signal::TERM).code(), Some(0));
}

#[test]
fn a_port_that_is_taken_is_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("--listen={}", taken.local_addr().unwrap());
    let complaint = run([&listen, "--http=off", "--log-level=off"]).complained(71);
    assert!(
        complaint.starts_with("cannot listen on 127.0.0.1:"),
        "{complaint}"
    );
}

#[test]
fn two_servers_do_not_share_a_port() {
    let first = Server::start(&[]);
    let listen = format!("--listen={}", first.address);
    let complaint = run([&listen, "--http=off", "--log-level=off"]).complained(71);
    assert!(
        complaint.starts_with("cannot listen on 127.0.0.1:"),
        "{complaint}"
    );
}
