//! Doors for `fuzz-tests`: what this crate makes of bytes that others have written. Not part of the
//! library's interface.
//!
//! Each function takes any bytes, must come to an end without a panic, and asserts what has to hold
//! whatever they are.

use crate::Server;
use crate::observe::metrics::Counter;
use crate::redis::recognise_text;
use crate::report::http;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use engine::{KEY_BYTES_MAX, Key};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use std::sync::OnceLock;

/// Looks which of the known scripts a text is. What does not change its meaning must not change the
/// answer.
pub fn recognise_script(text: &[u8]) {
    let recognise = |text: &[u8]| recognise_text(text, &Counter::default()).script;
    let script = recognise(text);
    let (before, behind) = (b" \t\n".as_slice(), b"\n-- that was all\n;".as_slice());
    let around = [before, text, behind].concat();
    if around.len() <= text.len().max(SCRIPT_BYTES_SURE) {
        assert_eq!(
            script,
            recognise(&around),
            "blanks and comments change what a script is"
        );
    }
}

/// Texts of this length are looked at; the bound is a little above.
const SCRIPT_BYTES_SURE: usize = 60 * 1024;

/// The longest body that is looked at.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Answers one request of the HTTP side: a line with method and target, then a line for each
/// header.
pub fn answer_http(head: &[u8]) {
    if let Some(request) = request(head) {
        answer(request);
    }
    // The same bytes as a key, and as a prefix. Both are read back as they are.
    let encoded = percent_encode(head, NON_ALPHANUMERIC).to_string();
    assert_eq!(
        http::path_bytes(&encoded),
        head,
        "a key in a path is another one"
    );
    let query = format!("prefix={encoded}&limit=3");
    assert_eq!(
        http::prefix_of(&query).as_deref(),
        Ok(head),
        "a prefix is another one"
    );
    let (status, _) = answer(get(&format!("/locks?{query}")));
    assert_eq!(status, StatusCode::OK);
    if head.len() <= 2 * KEY_BYTES_MAX {
        let (status, _) = answer(get(&format!("/locks/{encoded}")));
        let is_key = Key::new(head).is_ok();
        let expected = match is_key {
            true => StatusCode::NOT_FOUND,
            false => StatusCode::BAD_REQUEST,
        };
        assert_eq!(status, expected, "/locks/{encoded}");
    }
}

fn get(target: &str) -> Request<Body> {
    let built = Request::get(target).body(Body::empty());
    built.expect("a percent-encoded target is one")
}

fn request(head: &[u8]) -> Option<Request<Body>> {
    let mut lines = head.split(|&byte| byte == b'\n');
    let mut words = lines.next()?.split(|&byte| byte == b' ');
    let method = Method::from_bytes(words.next()?).ok()?;
    let mut request = Request::builder().method(method).uri(words.next()?);
    for line in lines {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        request = request.header(name, value);
    }
    request.body(Body::empty()).ok()
}

/// Gives one request to the routes of a server that runs for nothing else.
fn answer(request: Request<Body>) -> (StatusCode, Vec<u8>) {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let builder = Server::builder().threads(1).with(|config| {
            config.durability = crate::config::Durability::None;
            // No directory of that name is there to be read.
            config.data_dir = "fuzz-tests-keep-nothing".into();
        });
        builder.start().expect("a server starts on a free port")
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime without sockets");
    runtime.block_on(async {
        let is_head = request.method() == Method::HEAD;
        let response = http::answer_alone(server.shared.clone(), request).await;
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, BODY_BYTES_MAX).await;
        let body = body.expect("answers are short and made in memory").to_vec();
        let known = [
            StatusCode::OK,
            StatusCode::SEE_OTHER,
            StatusCode::BAD_REQUEST,
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::CONFLICT,
            StatusCode::NOT_FOUND,
            StatusCode::METHOD_NOT_ALLOWED,
            StatusCode::SERVICE_UNAVAILABLE,
        ];
        assert!(known.contains(&parts.status), "{}", parts.status);
        let is_json = parts.headers.get(header::CONTENT_TYPE);
        if !is_head && is_json.is_some_and(|sort| sort == "application/json") {
            let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&body);
            assert!(parsed.is_ok(), "{}", body.escape_ascii());
        }
        (parts.status, body)
    })
}
