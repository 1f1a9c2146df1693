//! A server with a file of rights, and peers with its tokens.

use crate::common::{Peer, hello};
use crate::http::{ask, free_port, http_addr};
use crate::redis::{self, Redis};
use protocol::{Cursor, Hello, Prefix, Reply, Request, Token};
use server::Server;
use sha2::{Digest, Sha256};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The token of a name: anything long enough.
pub(crate) fn token(name: &str) -> String {
    format!("the-token-of-{name}")
}

pub(crate) fn hash(name: &str) -> String {
    let digest = Sha256::digest(token(name).as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An entry of a rights file.
pub(crate) fn entry(name: &str, rest: &str) -> String {
    let hex = hash(name);
    format!("[[token]]\nname = \"{name}\"\nsha256 = \"{hex}\"\n{rest}\n\n")
}

pub(crate) struct Guarded {
    directory: tempfile::TempDir,
    pub(crate) server: Server,
}

impl Guarded {
    pub(crate) fn start(text: &str) -> Self {
        Guarded::start_with(text, |_| {})
    }

    pub(crate) fn start_with(text: &str, change: impl FnOnce(&mut server::Config)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = rights_file(directory.path());
        std::fs::write(&path, text).expect("a file");
        let server = redis::start(|config| {
            config.auth_file = Some(path);
            config.http = Some(free_port());
            change(config);
        });
        Guarded { directory, server }
    }

    pub(crate) fn write(&self, text: &str) {
        std::fs::write(rights_file(self.directory.path()), text).expect("a file");
        self.server.reload();
    }

    /// Puts a pipe in the place of the file.
    pub(crate) fn put_pipe(&self) {
        let path = rights_file(self.directory.path());
        std::fs::remove_file(&path).expect("it is there");
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo runs").success());
    }

    pub(crate) fn native(&self, name: &str) -> Peer {
        Peer::open(self.server.local_addr(), hello_of(name, &token(name)))
    }

    pub(crate) fn redis(&self, name: &str) -> Redis<TcpStream> {
        let mut redis = Redis::connect(&self.server);
        assert_eq!(redis.say(&format!("AUTH {}", token(name))), "OK");
        redis
    }

    pub(crate) fn http(&self, name: &str, path: &str) -> u16 {
        let header = format!("Authorization: Bearer {}\r\n", token(name));
        let answer = ask(http_addr(&self.server), "GET", path, &header);
        answer.expect("the server answers").status
    }
}

fn rights_file(directory: &Path) -> PathBuf {
    directory.join("rights.toml")
}

pub(crate) fn hello_of<'a>(name: &'a str, token: &'a str) -> Hello<'a> {
    Hello {
        token: Token::new(token.as_bytes()).expect("a short token"),
        ..hello(name)
    }
}

/// All keys with this prefix that the peer may see.
pub(crate) fn listed(peer: &mut Peer, prefix: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut cursor = Vec::new();
    loop {
        let request = Request::List {
            prefix: Prefix::new(prefix.as_bytes()).expect("a short prefix"),
            cursor: Cursor::new(&cursor).expect("from the page before"),
            limit: 0,
        };
        let next = peer.ask(&request, |reply| match reply {
            Reply::ListPage { next, entries, .. } => {
                let found = entries.iter().map(|entry| entry.key.as_bytes().to_vec());
                keys.extend(found.map(|key| String::from_utf8(key).expect("text")));
                next.as_bytes().to_vec()
            }
            other => panic!("no page but {other:?}"),
        });
        if next.is_empty() {
            keys.sort();
            return keys;
        }
        cursor = next;
    }
}
