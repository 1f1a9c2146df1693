//! Peers of other protocols that have come to the wrong port. They are told so in their own words:
//! a person who reads "the frame has 542393675 bytes" does not think of the port.

/// What a peer speaks instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stray {
    /// A browser, a probe, a scraper of metrics.
    Http,
    /// A client of Redis.
    Redis,
}

/// The methods of HTTP, as far as four bytes tell them, and the preface of HTTP/2.
const METHODS: [&[u8; 4]; 10] = [
    b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC", b"CONN", b"PRI ",
];

impl Stray {
    /// Recognises a peer by its first bytes. They are asked about only where they are no frame: as
    /// a length, each of these is beyond every limit.
    pub(super) fn recognise(bytes: &[u8]) -> Option<Stray> {
        let first: &[u8; 4] = bytes.first_chunk()?;
        match first {
            [b'*', b'0'..=b'9', ..] | b"PING" | b"AUTH" => Some(Stray::Redis),
            method if METHODS.contains(&method) => Some(Stray::Http),
            _ => None,
        }
    }

    /// What it is told, and the log says.
    pub(super) fn message(self) -> &'static str {
        match self {
            Stray::Http => {
                "this port speaks Fencepost's own protocol and not HTTP; health, metrics and locks over HTTP are on \
                 the port of --http, 7401 unless it was set"
            }
            Stray::Redis => {
                "this port speaks Fencepost's own protocol and not that of Redis; Redis clients are served on the \
                 port of --redis-listen, if it was set"
            }
        }
    }

    /// The same as an answer that it understands.
    pub(super) fn answer(self) -> String {
        let message = self.message();
        match self {
            Stray::Http => format!(
                "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{message}\n",
                message.len() + 1,
            ),
            Stray::Redis => format!("-ERR {message}\r\n"),
        }
    }
}

#[cfg(test)]
mod tests;
