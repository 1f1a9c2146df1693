//! As much of HTTP as the bench needs: one request, one answer, one connection. In version
//! 1.0, whose answers end with the connection, so nothing has to be taken apart.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Asks, and waits for the whole answer. `patience`: how long it may take.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, String)],
    body: &str,
    patience: Duration,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let length = body.len();
    head.push_str(&format!("Content-Length: {length}\r\n\r\n{body}"));
    stream.write_all(head.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&String::from_utf8_lossy(&bytes)).ok_or_else(|| io::Error::other("not an HTTP answer"))
}

fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_status_and_a_body() {
        let answer = parse("HTTP/1.0 409 Conflict\r\nx: y\r\n\r\n{}\n").unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (409, "{}\n"));
        assert_eq!(parse("HTTP/1.0 200"), None);
    }
}
