//! `POST /force-release?key=&fence=`: takes a lock away from its holder, as `fencepost release
//! --force` does. The only path of this side that changes something.
//!
//! It needs the role *operate* for the key. Beyond that it must come from a program that means it,
//! or from this server's own page, and not from a page of another site in an operator's browser:
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
//! There are no cookies, and a token is sent by the page's own script only.
//!
//! A core does the work (`core/forcing.rs`): it audits it and writes it down, and this waits until
//! that is settled.

use super::{Sender, View, forbid, json, parameters, refuse};
use crate::core::forcing::force_release;
use crate::core::mail::Forced;
use crate::rights::{Entitlement, Role};
use crate::session::operator::Operator;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use engine::{Fence, KEY_BYTES_MAX, Key, NotHeld};
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// No form and no link can send it.
const OPERATOR_HEADER: &str = "x-fencepost-operator";

/// How long a core, and the disk or the cluster behind it, may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Released {
    released: bool,
    fence: u64,
}

/// `/force-release`
pub(super) async fn force(
    State(view): State<Arc<View>>,
    Extension(entitlement): Extension<Arc<Entitlement>>,
    Extension(Sender(address)): Extension<Sender>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let shared = view.shared();
    if let Err(sentence) = check_sender(&headers) {
        return refuse(StatusCode::FORBIDDEN, sentence);
    }
    let (key, fence) = match parameters::key_and_fence(uri.query().unwrap_or("")) {
        Ok(asked) => asked,
        Err(sentence) => return refuse(StatusCode::BAD_REQUEST, &sentence),
    };
    let Ok(name) = Key::new(&key) else {
        let length = key.len();
        let sentence = format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {length}");
        return refuse(StatusCode::BAD_REQUEST, &sentence);
    };
    let Some(fence) = Fence::new(fence) else {
        return refuse(StatusCode::BAD_REQUEST, "no lock has that fence");
    };
    if !entitlement.may_force(&key) {
        return forbid(&view, &entitlement, Role::Operate);
    }
    if let Some(cluster) = &shared.cluster
        && !cluster.leads
    {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, &cluster.not_leader());
    }
    let operator = Operator {
        token_name: entitlement.name().clone(),
        address: address.to_string().into(),
    };
    tracing::info!(key = %key.escape_ascii(), fence = fence.get(), by = &**entitlement.name(),
        %address, "a lock is to be taken away by force, over HTTP");
    let answered = force_release(&shared, name, fence, Arc::new(operator));
    match tokio::time::timeout(ANSWER_TIMEOUT, answered).await {
        Ok(Ok(Forced::Done)) => {
            let released = Released {
                released: true,
                fence: fence.get(),
            };
            json(StatusCode::OK, &released)
        }
        // Its holder may be about to claim it.
        Ok(Ok(Forced::NotHeld(_))) if shared.recovery.is_on() => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "the server recovers and does not know all holders: nothing was taken away. Try again later",
        ),
        Ok(Ok(Forced::NotHeld(why))) => {
            let sentence = format!("nothing was taken away: {}", reason(why));
            refuse(StatusCode::CONFLICT, &sentence)
        }
        Ok(Err(_)) | Err(_) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "it is not known whether the lock was taken away: the server stops, or its disk or its cluster does not answer. Look at the lock again",
        ),
    }
}

fn reason(why: NotHeld) -> &'static str {
    match why {
        NotHeld::Expired | NotHeld::SessionEnded => "the lease of this fence has run out",
        NotHeld::Released => "the lock of this fence has been released",
        NotHeld::Forced => "the lock of this fence was taken away before",
        NotHeld::Never => "this fence has never been granted",
        NotHeld::OtherOwner | NotHeld::OtherFence => "the key is held under another fence by now",
        NotHeld::Free => "the key is not held",
    }
}

/// Whether this comes from a program that means it or from this server's own page. The error is a
/// sentence for its author.
fn check_sender(headers: &HeaderMap) -> Result<(), &'static str> {
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
    if !headers.contains_key(header::AUTHORIZATION) && !names_this_machine(host) {
        return Err(
            "without a token this must be sent to localhost or to a loopback address, by that name",
        );
    }
    Ok(())
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
        assert!(check_sender(&headers(&[local, MEANT])).is_ok());
        let own = ("origin", "http://127.0.0.1:7401");
        let near = ("sec-fetch-site", "same-origin");
        assert!(check_sender(&headers(&[local, MEANT, own, near])).is_ok());
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
            assert!(check_sender(&headers(other)).is_err(), "{other:?}");
        }
    }

    #[test]
    fn a_token_makes_up_for_a_name_that_others_may_have() {
        let far = ("host", "locks.example:7401");
        let token = ("authorization", "Bearer x");
        assert!(check_sender(&headers(&[far, MEANT, token])).is_ok());
        assert!(check_sender(&headers(&[far, MEANT])).is_err());
        let other = ("origin", "http://evil.example");
        assert!(check_sender(&headers(&[far, MEANT, token, other])).is_err());
    }
}
