//! Peers that speak without TLS to a port that speaks TLS only.

use bytes::BytesMut;
use protocol::{ErrorCode, Message, NodeAddress, Reply, RequestId};
use protocol::{PROTOCOL_VERSION, PROTOCOL_VERSION_MIN};
use std::fmt;

/// What a peer seems to speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guess {
    Http,
    Redis,
    Native,
    Unknown,
}

/// The beginnings of requests.
const METHODS: [&[u8]; 6] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
];

impl Guess {
    /// Guesses by the first bytes.
    pub(crate) fn of(first: &[u8]) -> Guess {
        if METHODS.iter().any(|method| first.starts_with(method)) {
            Guess::Http
        } else if first.starts_with(b"*") || first.starts_with(b"PING") {
            Guess::Redis
        } else if first.len() > 4 && first[2..5] == [0, 0, HELLO_KIND] {
            Guess::Native
        } else {
            Guess::Unknown
        }
    }

    /// What the peer is told, in the words it seems to know.
    pub(crate) fn answer(self) -> Vec<u8> {
        match self {
            Guess::Http => {
                let text = "this port speaks TLS: use https://\n";
                let bytes = text.len();
                format!(
                    "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
                     content-length: {bytes}\r\nconnection: close\r\n\r\n{text}"
                )
                .into_bytes()
            }
            Guess::Redis => {
                b"-ERR this port speaks TLS: connect with TLS, as redis-cli --tls does\r\n".into()
            }
            Guess::Native => {
                let mut out = BytesMut::new();
                let refusal = Reply::HelloRefused {
                    code: ErrorCode::MALFORMED,
                    version_min: PROTOCOL_VERSION_MIN,
                    version_max: PROTOCOL_VERSION,
                    message: Message::clipped(SPEAKS_TLS),
                    leader: NodeAddress::clipped(""),
                };
                refusal.append(RequestId::NONE, &mut out);
                out.into()
            }
            Guess::Unknown => Vec::new(),
        }
    }
}

/// What a native client is told.
const SPEAKS_TLS: &str = "this port speaks TLS: give the client the authority that signed the server's certificate, \
     with tls() or --tls-ca";

/// The kind of a hello's frame, behind the four bytes of its length.
const HELLO_KIND: u8 = protocol::request::op::HELLO;

impl fmt::Display for Guess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guess::Http => "it speaks plain HTTP",
            Guess::Redis => "it speaks Redis's protocol without TLS",
            Guess::Native => "it is a native client without TLS",
            Guess::Unknown => "it speaks something that is not TLS",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{ClientName, Hello, Request};

    #[test]
    fn peers_without_tls_are_told_in_their_own_words() {
        let mut hello = BytesMut::new();
        let name = ClientName::new("test").unwrap();
        Request::Hello(Hello::new(name)).append(RequestId::new(1), &mut hello);
        assert_eq!(Guess::of(&hello), Guess::Native);
        assert_eq!(Guess::of(b"GET / HTTP/1.1\r\n"), Guess::Http);
        assert_eq!(Guess::of(b"*1\r\n$4\r\nPING"), Guess::Redis);
        assert_eq!(Guess::of(b"\0\0"), Guess::Unknown);
        assert!(Guess::Unknown.answer().is_empty());
        let answer = String::from_utf8(Guess::Http.answer()).unwrap();
        assert!(answer.ends_with("https://\n"), "{answer}");
    }
}
