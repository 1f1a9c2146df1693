//! The real program with certificates: what its ports let in and what they refuse, what a reload
//! changes, and which certificates it does not start with.

use crate::program::{
    Held, PATIENCE, Server, UNTIL_RELEASED, await_condition, end, fencepost, run,
};
use bytes::BytesMut;
use protocol::{ClientName, Hello, Request, RequestId};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use tls::issue::{Authority, Issued};
use tls::rustls::{ClientConfig, ClientConnection, StreamOwned};
use tls::{Identity, VersionMin, client_config, read_roots};

pub(crate) type Secure = StreamOwned<ClientConnection, TcpStream>;

/// What a client speaks with who trusts this authority and shows this certificate.
pub(crate) fn client(authority: &Authority, own: Option<&Issued>) -> Arc<ClientConfig> {
    let own = own.map(|own| Identity::read(&own.cert, &own.key).unwrap());
    let roots = read_roots(&authority.file()).unwrap();
    client_config(roots, own, VersionMin::Tls12).unwrap()
}

/// A stream that has not shaken hands yet.
pub(crate) fn open(address: &str, config: &Arc<ClientConfig>) -> Secure {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = tls::server_name("localhost").unwrap();
    let session = ClientConnection::new(config.clone(), name).unwrap();
    StreamOwned::new(session, stream)
}

/// Sends a request and reads the first bytes of the answer.
fn ask(stream: &mut Secure, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    stream.flush()?;
    let mut answer = vec![0; 4096];
    match stream.read(&mut answer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        bytes => {
            answer.truncate(bytes);
            Ok(answer)
        }
    }
}

fn ask_plain(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn hello() -> BytesMut {
    let mut bytes = BytesMut::new();
    let name = ClientName::new("scan").unwrap();
    Request::Hello(Hello::new(name)).append(RequestId::new(1), &mut bytes);
    bytes
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// A server whose three ports are known.
struct Secured {
    dir: TempDir,
    authority: Authority,
    own: Issued,
    server: Server,
    redis: String,
    http: String,
}

impl Secured {
    fn start(with_tls: bool, more: &[&str]) -> Secured {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(dir.path(), "ca");
        let own = authority.issue("server");
        let (redis, http) = (free_port().to_string(), free_port().to_string());
        let mut arguments = vec![
            "--threads=2".to_owned(),
            format!("--redis-listen={redis}"),
            format!("--http={http}"),
        ];
        if with_tls {
            arguments.push(format!("--tls-cert-file={}", own.cert.display()));
            arguments.push(format!("--tls-key-file={}", own.key.display()));
        }
        let ca = authority.file().display().to_string();
        let more = more.iter().map(|argument| argument.replace("{ca}", &ca));
        arguments.extend(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let server = Server::start(&arguments);
        Secured {
            dir,
            authority,
            own,
            server,
            redis,
            http,
        }
    }

    fn native(&self) -> &str {
        &self.server.address
    }

    /// Each port, with a request and what its answer contains.
    fn ports(&self) -> [(&str, Vec<u8>, &'static str); 3] {
        [
            (self.native(), hello().to_vec(), "fencepost"),
            (&self.redis, PING.to_vec(), "+PONG"),
            (&self.http, HEALTH.to_vec(), "200 OK"),
        ]
    }

    /// Waits for a log line that contains this.
    #[track_caller]
    fn await_line(&self, text: &str) {
        await_condition(|| has_line(&self.server, text));
    }
}

pub(crate) fn has_line(server: &Server, text: &str) -> bool {
    let lines = server.log();
    let message = |line: &Value| {
        line["message"]
            .as_str()
            .is_some_and(|line| line.contains(text))
    };
    lines.iter().any(message)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn the_commands_speak_tls_and_say_what_is_wrong() {
    let secured = Secured::start(true, &[]);
    let ca = shown(&secured.authority.file());
    let server = ["--server", secured.native()];
    let tls = ["--tls-ca", &ca];
    run(["lock", "k", "--detach", "--ttl=1h"]
        .iter()
        .chain(&server)
        .chain(&tls))
    .printed();
    let mut by_variable = fencepost(["query", "k", "--json"].iter().chain(&server));
    let state = end(by_variable.env("FENCEPOST_TLS_CA", &ca)).printed();
    let state: Value = serde_json::from_str(&state).unwrap();
    assert!(state["holders"][0]["fence"].is_u64(), "{state}");
    let without = run(["query", "k"].iter().chain(&server));
    let complaint = without.stderr;
    assert!(complaint.contains("this port speaks TLS"), "{complaint}");
    secured.await_line("it is a native client without TLS");
    let others = Authority::new(secured.dir.path(), "others");
    let others = shown(&others.file());
    let wrong = run(["query", "k", "--tls-ca", &others].iter().chain(&server));
    assert!(
        wrong.stderr.contains("no authority that is trusted here"),
        "{wrong:?}"
    );
    let half = run(["query", "k", "--tls-cert", &ca].iter().chain(&server));
    assert!(half.complained(2).contains("--tls-ca"));
}

#[test]
fn redis_cli_and_curl_speak_tls() {
    let secured = Secured::start(true, &[]);
    let ca = shown(&secured.authority.file());
    let port = secured.redis.rsplit_once(':').unwrap().1;
    let mut redis_cli = Command::new("redis-cli");
    redis_cli.args(["--tls", "--cacert", &ca, "-h", "127.0.0.1", "-p", port]);
    redis_cli.args(["SET", "k", "token", "NX", "PX", "30000"]);
    match redis_cli.output() {
        Ok(output) => {
            let printed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(printed.trim(), "OK", "{output:?}");
        }
        Err(error) => {
            eprintln!("NOT TESTED: redis-cli --tls, since redis-cli does not run: {error}")
        }
    }
    let url = format!("https://{}/metrics", secured.http);
    let curl = Command::new("curl")
        .args(["-sS", "--cacert", &ca, &url])
        .output();
    match curl {
        Ok(output) => {
            let page = String::from_utf8_lossy(&output.stdout);
            let line = page.lines().find_map(|line| {
                line.strip_prefix("fencepost_tls_certificate_expires_in_seconds ")
            });
            let seconds: f64 = line.expect("the metric is there").parse().unwrap();
            assert!(seconds > 86_400.0, "{seconds}");
        }
        Err(error) => eprintln!("NOT TESTED: curl --cacert, since curl does not run: {error}"),
    }
}

/// A scan of the ports with no certificate, one of another authority, one that has expired, and a
/// good one. A lock that is held over TLS meanwhile stays held.
#[test]
fn only_good_certificates_come_in() {
    let required = ["--tls-client-ca-file={ca}", "--tls-client-auth=required"];
    let secured = Secured::start(true, &required);
    let authority = &secured.authority;
    let good = authority.issue("good");
    let files = [&authority.file(), &good.cert, &good.key].map(|path| shown(path));
    let tls = [
        "k",
        "--tls-ca",
        &files[0],
        "--tls-cert",
        &files[1],
        "--tls-key",
        &files[2],
    ];
    let held = Held::new(&secured.server, &tls, UNTIL_RELEASED);
    let others = Authority::new(secured.dir.path(), "others");
    let strangers = [
        ("no certificate", None, "showed no certificate"),
        (
            "another authority's",
            Some(others.issue("wrong")),
            "signed by no authority",
        ),
        (
            "an expired one",
            Some(authority.issue_expired("old")),
            "has expired",
        ),
    ];
    for (what, own, _) in &strangers {
        let config = client(authority, own.as_ref());
        for (address, request, _) in secured.ports() {
            let answer = ask(&mut open(address, &config), &request);
            assert!(answer.is_err(), "{what} at {address}: {answer:?}");
        }
    }
    // One line for each kind and interval, on either side; which stranger came first is ours.
    secured.await_line(strangers[0].2);
    let config = client(authority, Some(&good));
    for (address, request, expected) in secured.ports() {
        let answer = ask(&mut open(address, &config), &request).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains(expected), "{address}: {answer}");
    }
    let metrics = b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut stream = open(&secured.http, &config);
    stream.write_all(metrics).unwrap();
    let mut page = String::new();
    let _ = stream.read_to_string(&mut page);
    let failed = page
        .lines()
        .find_map(|line| line.strip_prefix("fencepost_tls_handshakes_failed_total "));
    assert_eq!(failed, Some("9"), "{page}");
    assert_eq!(held.release(), Some(0), "the lock was not disturbed");
}

#[test]
fn peers_without_tls_are_told_on_each_port() {
    let secured = Secured::start(true, &[]);
    let redis = ask_plain(&secured.redis, PING);
    assert!(redis.starts_with("-ERR this port speaks TLS"), "{redis}");
    for address in [&secured.http, secured.native()] {
        let http = ask_plain(address, HEALTH);
        assert!(
            http.starts_with("HTTP/1.1 400") && http.contains("https://"),
            "{http}"
        );
    }
    let native = ask_plain(secured.native(), &hello());
    assert!(native.contains("this port speaks TLS"), "{native}");
    secured.await_line("it speaks Redis's protocol without TLS");
    secured.await_line("which speaks TLS only: it speaks plain HTTP");
}

#[test]
fn clients_with_tls_are_told_on_each_plain_port() {
    let secured = Secured::start(false, &[]);
    let config = client(&secured.authority, None);
    for (address, request, _) in secured.ports() {
        let refused = ask(&mut open(address, &config), &request).unwrap_err();
        let reason = tls::reason_of_io(&refused);
        assert!(reason.contains("does not speak TLS"), "{address}: {reason}");
    }
    secured.await_line("speaks TLS, and this port does not");
    secured.await_line("a client of HTTP speaks TLS");
}

#[test]
fn a_port_can_stay_plain() {
    let secured = Secured::start(true, &["--tls-ports=native,redis"]);
    let answer = ask_plain(&secured.http, b"GET /healthz HTTP/1.0\r\n\r\n");
    assert!(answer.contains("200 OK"), "{answer}");
    let config = client(&secured.authority, None);
    let pong = ask(&mut open(&secured.redis, &config), PING).unwrap();
    assert_eq!(pong, b"+PONG\r\n");
}

#[test]
fn a_reload_exchanges_certificates_and_drops_no_connection() {
    let secured = Secured::start(true, &[]);
    let config = client(&secured.authority, None);
    let mut open_before = open(&secured.redis, &config);
    assert_eq!(ask(&mut open_before, PING).unwrap(), b"+PONG\r\n");
    // The next authority's certificate takes the place of the present one.
    let next = Authority::new(secured.dir.path(), "next");
    let issued = next.issue("server");
    std::fs::copy(&issued.cert, &secured.own.cert).unwrap();
    std::fs::copy(&issued.key, &secured.own.key).unwrap();
    secured.server.send(Signal::HUP);
    secured.await_line("certificates read again");
    let next_config = client(&next, None);
    assert_eq!(
        ask(&mut open(&secured.redis, &next_config), PING).unwrap(),
        b"+PONG\r\n"
    );
    assert!(
        ask(&mut open(&secured.redis, &config), PING).is_err(),
        "the old one is gone"
    );
    assert_eq!(ask(&mut open_before, PING).unwrap(), b"+PONG\r\n");
    // What cannot be used changes nothing.
    std::fs::write(&secured.own.cert, "no certificate").unwrap();
    secured.server.send(Signal::HUP);
    secured.await_line("the certificates stay as they were");
    assert_eq!(
        ask(&mut open(&secured.redis, &next_config), PING).unwrap(),
        b"+PONG\r\n"
    );
    assert_eq!(ask(&mut open_before, PING).unwrap(), b"+PONG\r\n");
}

#[test]
fn tls_1_3_can_be_the_least() {
    let secured = Secured::start(true, &["--tls-version-min=1.3"]);
    let ca = shown(&secured.authority.file());
    let connect = |version: &str| {
        let mut openssl = Command::new("openssl");
        openssl.args([
            "s_client",
            "-connect",
            &secured.redis,
            "-CAfile",
            &ca,
            version,
        ]);
        openssl.stdin(std::process::Stdio::null()).output()
    };
    match (connect("-tls1_2"), connect("-tls1_3")) {
        (Ok(older), Ok(newer)) => {
            assert!(!older.status.success(), "{older:?}");
            assert!(newer.status.success(), "{newer:?}");
        }
        (older, _) => eprintln!("NOT TESTED: TLS 1.2, since openssl does not run: {older:?}"),
    }
}

#[test]
fn certificates_that_cannot_be_used_do_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let (good, other) = (authority.issue("good"), authority.issue("other"));
    let old = authority.issue_expired("old");
    let data = dir.path().join("data");
    let check = |arguments: &[&str]| {
        let data = format!("--data-dir={}", data.display());
        let always = [
            "serve",
            "--check-config",
            "--listen=127.0.0.1:0",
            "--http=off",
        ];
        let always = always.into_iter().chain([data.as_str()]);
        run(always.chain(arguments.iter().copied()))
    };
    let files = |cert: &Path, key: &Path| {
        let cert = format!("--tls-cert-file={}", cert.display());
        (cert, format!("--tls-key-file={}", key.display()))
    };
    let wrong = [
        (files(&old.cert, &old.key), "expired at 2020"),
        (
            files(&good.cert, &other.key),
            "is not that of the certificate",
        ),
        (files(&dir.path().join("none"), &good.key), "cannot read"),
    ];
    for ((cert, key), expected) in &wrong {
        let complaint = check(&[cert, key]).complained(2);
        assert!(complaint.contains(expected), "{complaint}");
    }
    let (cert, key) = files(&good.cert, &good.key);
    assert_eq!(check(&[&cert, &key]).printed(), "ok\n");
    let alone = check(&[&cert]).complained(2);
    assert!(alone.contains("--tls-key-file"), "{alone}");
    let unasked = check(&[&cert, &key, "--tls-client-auth=required"]).complained(2);
    assert!(unasked.contains("--tls-client-ca-file"), "{unasked}");
    assert!(!data.exists(), "nothing was written");
}

/// Handshakes that never go on are strangers like any others: they end in time, and until then
/// they hold up no client.
#[test]
fn handshakes_that_hang_hold_up_no_client() {
    let secured = Secured::start(true, &["--hello-timeout=300ms"]);
    let hanging: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(&secured.redis).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            // The beginning of a handshake.
            stream
                .write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01])
                .unwrap();
            stream
        })
        .collect();
    let config = client(&secured.authority, None);
    assert_eq!(
        ask(&mut open(&secured.redis, &config), PING).unwrap(),
        b"+PONG\r\n"
    );
    for mut stream in hanging {
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{rest:?}");
    }
    secured.await_line("no TLS handshake came in time");
}

/// A certificate that `auth_file` names stands for a token, on each port. Over HTTP it is good for
/// looking.
#[test]
fn names_of_certificates_carry_rights() {
    let dir = tempfile::tempdir().unwrap();
    let rights = dir.path().join("rights.toml");
    let entry = "[[certificate]]\nname = \"billing\"\nroles = [\"lock\", \"read\"]\nprefixes = [\"billing/\"]\n";
    std::fs::write(&rights, entry).unwrap();
    let rights = format!("--auth-file={}", rights.display());
    let optional = [
        "--tls-client-ca-file={ca}",
        "--tls-client-auth=optional",
        &rights,
    ];
    let secured = Secured::start(true, &optional);
    let authority = &secured.authority;
    let ca = shown(&authority.file());
    let (named, unnamed) = (authority.issue("billing"), authority.issue("reports"));
    let lock = |own: Option<&Issued>, key: &str| {
        let mut command = fencepost(["lock", key, "--detach", "--ttl=1h", "--tls-ca", &ca]);
        command.args(["--server", secured.native()]);
        if let Some(own) = own {
            command.args([
                "--tls-cert",
                &shown(&own.cert),
                "--tls-key",
                &shown(&own.key),
            ]);
        }
        end(&mut command)
    };
    lock(Some(&named), "billing/1").printed();
    let elsewhere = lock(Some(&named), "orders/1");
    assert!(elsewhere.stderr.contains("forbidden"), "{elsewhere:?}");
    for own in [None, Some(&unnamed)] {
        let refused = lock(own, "billing/2");
        assert!(refused.stderr.contains("wants a token"), "{refused:?}");
    }
    let own = client(authority, Some(&named));
    let mut redis = open(&secured.redis, &own);
    let set =
        b"*6\r\n$3\r\nSET\r\n$9\r\nbilling/3\r\n$1\r\nx\r\n$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n9000\r\n";
    assert_eq!(ask(&mut redis, set).unwrap(), b"+OK\r\n");
    let mut without = open(&secured.redis, &client(authority, None));
    let refused = ask(&mut without, set).unwrap();
    assert!(refused.starts_with(b"-NOAUTH"), "{refused:?}");
    let request = |method: &str| {
        format!("{method} /locks/billing%2F1 HTTP/1.1\r\nhost: a\r\n\r\n").into_bytes()
    };
    let http = |config: &Arc<ClientConfig>, method: &str| {
        let answer = ask(&mut open(&secured.http, config), &request(method)).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let seen = http(&own, "GET");
    assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    let unseen = http(&client(authority, None), "GET");
    assert!(unseen.starts_with("HTTP/1.1 401"), "{unseen}");
    let changed = http(&own, "DELETE");
    assert!(changed.starts_with("HTTP/1.1 401"), "{changed}");
}
