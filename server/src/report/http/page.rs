//! The operator's page: one document with its style sheet and scripts, all of them part of the
//! program. It shows what the JSON paths of this side show, and fetches them itself.
//!
//! The files hold nothing about this server, so they need no token; what the page fetches does.
//!
//! Keys, names and metadata come from clients, so the page must not be able to run them. Its
//! policy lets scripts and styles come from this server's own files only, none of them inline, and
//! `require-trusted-types-for` has the browser refuse any text that is to become markup.

use super::{View, answer};
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use std::sync::Arc;

/// Where the page is. Its files lie beneath, and it names all others relative to it, so that a
/// proxy may put this side under a path of its own.
const PAGE: &str = "/ui/";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Every file: its path beneath [`PAGE`], its type, and what is in it.
const FILES: [(&str, &str, &str); 15] = [
    ("", HTML, include_str!("page/page.html")),
    ("page.css", CSS, include_str!("page/page.css")),
    ("icon.svg", SVG, include_str!("page/icon.svg")),
    ("page.js", SCRIPT, include_str!("page/page.js")),
    ("server.js", SCRIPT, include_str!("page/server.js")),
    ("text.js", SCRIPT, include_str!("page/text.js")),
    ("table.js", SCRIPT, include_str!("page/table.js")),
    ("locks.js", SCRIPT, include_str!("page/locks.js")),
    ("lock.js", SCRIPT, include_str!("page/lock.js")),
    ("history.js", SCRIPT, include_str!("page/history.js")),
    ("pager.js", SCRIPT, include_str!("page/pager.js")),
    ("contended.js", SCRIPT, include_str!("page/contended.js")),
    ("sessions.js", SCRIPT, include_str!("page/sessions.js")),
    ("cluster.js", SCRIPT, include_str!("page/cluster.js")),
    ("numbers.js", SCRIPT, include_str!("page/numbers.js")),
];

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

pub(super) fn routes() -> Router<Arc<View>> {
    let page = Router::new().route("/ui", get(go_to_page));
    FILES
        .into_iter()
        .fold(page, |routes, (name, content_type, text)| {
            let serve = move || async move { answer(StatusCode::OK, content_type, text) };
            routes.route(&format!("{PAGE}{name}"), get(serve))
        })
}

/// Whether a path is one of the page's files, which every peer may read.
pub(super) fn is_file(path: &str) -> bool {
    let name = path.strip_prefix(PAGE);
    path == "/ui" || name.is_some_and(|name| FILES.iter().any(|file| file.0 == name))
}

/// Whether the peer is a browser that a person has pointed here.
pub(super) fn is_wanted(request: &Request) -> bool {
    let accepts = request.headers().get_all(header::ACCEPT).iter();
    let mut accepts = accepts.filter_map(|value| value.to_str().ok());
    accepts.any(|value| value.contains("text/html"))
}

/// Sends a browser to the page.
pub(super) async fn go_to_page() -> Response {
    let text = "the page is at ui/\n";
    let mut response = answer(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", text);
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, HeaderValue::from_static("ui/"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// What every answer of this side tells a browser: to run nothing but the page's own files, to be
/// framed by no page, to guess no types, and to show the answer to no other site.
pub(super) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
