//! Where a request comes from: from a program that means it, from this server's own page, or from a
//! page of another site in an operator's browser.
//!
//! Requests that change something are asked for this, beyond the role that they need:
//!
//! | what is asked for                     | what it stops                                        |
//! |---------------------------------------|------------------------------------------------------|
//! | the header `X-Fencepost-Operator: 1`  | forms and links of other sites. A script of another  |
//! |                                       | site would have to ask first (CORS), and never may   |
//! | `Origin` and `Sec-Fetch-Site`, if a   | scripts of other sites, once more                    |
//! | browser sends them, name this server  |                                                      |
//! | without a token: a `Host` that names  | a site that has its own name resolve to this machine |
//! | this machine and no other             | (DNS rebinding)                                      |
//!
//! The last is asked of requests that only look, too. There are no cookies, and a token is sent by
//! the page's own script only.

use axum::http::{HeaderMap, header};
use protocol::TraceId;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// No form and no link can send it.
const OPERATOR_HEADER: &str = "x-fencepost-operator";

/// Whether this comes from a program that means it or from this server's own page. The error is a
/// sentence for its author. Where no token is asked for, one that is shown proves nothing.
pub(super) fn check_meant(headers: &HeaderMap, is_token_needed: bool) -> Result<(), &'static str> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text(OPERATOR_HEADER) != Some("1") {
        return Err(
            "this changes something: send the header X-Fencepost-Operator: 1 if it is meant",
        );
    }
    let host = text(header::HOST.as_str()).unwrap_or("");
    let is_own_origin = |origin: &str| {
        let rest = origin
            .strip_prefix("http://")
            .or(origin.strip_prefix("https://"));
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
    };
    if !text(header::ORIGIN.as_str()).is_none_or(is_own_origin)
        || !text("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"))
    {
        return Err("this comes from a page of another site");
    }
    if !is_token_needed && !names_this_machine(host) {
        return Err(
            "without a token this must be sent to localhost or to a loopback address, by that name",
        );
    }
    Ok(())
}

/// The trace that a request is part of, as the header `traceparent` of the W3C names it. One that
/// does not fit is left out: nothing fails for its trace.
pub(super) fn trace_of(headers: &HeaderMap) -> Option<Arc<str>> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let trace_id = TraceId::new(text).ok()?.as_str();
    (!trace_id.is_empty()).then(|| trace_id.into())
}

/// Whether a request without a token, to an address of this machine, may be a program's: its `Host`
/// is a name that no web site can have, or there is none, as no browser sends it.
pub(super) fn may_be_local(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST);
    host.is_none_or(|host| names_this_machine(host.to_str().unwrap_or("?")))
}

/// Whether a `Host` is a name that no other machine can have.
fn names_this_machine(host: &str) -> bool {
    let name = match host.parse::<SocketAddr>() {
        Ok(address) => return address.ip().to_canonical().is_loopback(),
        Err(_) => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |text: &str| text.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    name.eq_ignore_ascii_case("localhost") || is_loopback(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let parse = |(name, value): &(&'static str, &'static str)| {
            (
                name.parse().expect("a name"),
                value.parse().expect("a value"),
            )
        };
        pairs.iter().map(parse).collect()
    }

    const MEANT: (&str, &str) = ("x-fencepost-operator", "1");

    #[test]
    fn a_host_names_this_machine_or_may_be_any() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:7401",
            "127.8.9.1:1",
            "[::1]",
            "[::1]:7401",
            "localhost",
            "LocalHost:7401",
        ] {
            assert!(names_this_machine(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:7401",
            "localhost.evil.example",
            "10.0.0.1:7401",
            "[fe80::1]:7401",
            "127.0.0.1.evil.example",
            "localhost:7401:evil",
            "127.0.0.1:",
            ":",
        ] {
            assert!(!names_this_machine(host), "{host}");
        }
    }

    #[test]
    fn what_a_page_of_another_site_can_send_is_refused() {
        let local = ("host", "127.0.0.1:7401");
        assert!(check_meant(&headers(&[local, MEANT]), false).is_ok());
        let own = ("origin", "http://127.0.0.1:7401");
        let near = ("sec-fetch-site", "same-origin");
        assert!(check_meant(&headers(&[local, MEANT, own, near]), false).is_ok());
        for other in [
            &[local][..],
            &[local, ("x-fencepost-operator", "0")],
            &[local, MEANT, ("origin", "http://evil.example")],
            &[local, MEANT, ("origin", "null")],
            &[local, MEANT, ("origin", "http://127.0.0.1:7402")],
            &[local, MEANT, ("sec-fetch-site", "cross-site")],
            &[local, MEANT, ("sec-fetch-site", "same-site")],
            // Its own name, which it has made a name of this machine.
            &[
                ("host", "evil.example:7401"),
                MEANT,
                ("origin", "http://evil.example:7401"),
                near,
            ],
            &[MEANT],
        ] {
            assert!(check_meant(&headers(other), false).is_err(), "{other:?}");
        }
    }

    #[test]
    fn where_tokens_are_asked_for_any_name_will_do() {
        let far = ("host", "locks.example:7401");
        let token = ("authorization", "Bearer x");
        assert!(check_meant(&headers(&[far, MEANT, token]), true).is_ok());
        assert!(check_meant(&headers(&[far, MEANT, token]), false).is_err());
        let other = ("origin", "http://evil.example");
        assert!(check_meant(&headers(&[far, MEANT, token, other]), true).is_err());
    }

    #[test]
    fn a_trace_that_does_not_fit_is_left_out() {
        let trace = |text: &'static str| trace_of(&headers(&[("traceparent", text)]));
        assert_eq!(trace("00-4bf9-00f0-01").as_deref(), Some("00-4bf9-00f0-01"));
        assert_eq!(trace(""), None);
        const LONG: &str = "00000000000000000000000000000000000000000000000000000000000000000";
        assert_eq!(LONG.len(), 65);
        assert_eq!(trace(LONG), None);
        assert_eq!(trace_of(&headers(&[])), None);
    }

    #[test]
    fn a_look_without_a_token_names_this_machine_or_nothing() {
        assert!(may_be_local(&headers(&[("host", "localhost:7401")])));
        assert!(may_be_local(&headers(&[])));
        assert!(!may_be_local(&headers(&[("host", "evil.example:7401")])));
    }
}
