//! The operator's page in a real browser: what an operator sees, and can do with the keyboard
//! alone.

use crate::common::{Peer, acquire, hello_for, lost, start_with, with_metadata};
use crate::guarded::{self as rights, Guarded};
use crate::http::{free_port, http_addr};
use crate::webdriver::{Browser, ENTER, ESCAPE, TAB};
use protocol::{Hello, LostReason, Reply, Request, Token};
use serde_json::json;
use server::Server;

/// If a browser took it for markup, it would run.
const MARKUP: &str = "<img src=x onerror=document.title='owned'>";

fn url(server: &Server) -> String {
    format!("http://{}/", http_addr(server))
}

/// A client that need not show signs of life while the browser is looked at.
fn silent_for_long(server: &Server, name: &str) -> Peer {
    Peer::open(server.local_addr(), hello_for(name, 600_000))
}

/// The row of a key, as an expression; `null` if it is not shown.
fn row(key: &str) -> String {
    let key = json!(key);
    format!(
        "[...document.querySelectorAll('#locks-rows tr')].find(row => row.cells[0].innerText === {key})"
    )
}

/// Nothing was loaded from elsewhere, refused by the policy, or failed.
#[track_caller]
fn assert_no_complaints(browser: &Browser) {
    assert_eq!(browser.log(), Vec::<String>::new());
    let title = browser.run("return document.title");
    assert_eq!(title, json!("Fencepost"), "markup was run");
    let images = browser.run("return document.querySelectorAll('main img, dialog img').length");
    assert_eq!(images, json!(0), "markup became an element");
}

#[test]
fn an_operator_looks_at_locks_searches_and_sees_what_changes() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("audit");
    let server = start_with(|builder| {
        let builder = builder.http(free_port());
        builder.with(|config| config.audit_log = Some(log))
    });
    let mut holder = silent_for_long(&server, "worker-7");
    let mut waiter = silent_for_long(&server, MARKUP);
    let fence = holder.acquire("orders/1", 600_000);
    let request = with_metadata(MARKUP, 600_000, MARKUP);
    waiter.ask(&request, crate::common::granted);
    waiter.send(&acquire("orders/1", 600_000, 600_000));
    // Answered behind the acquire, which waits by then.
    waiter.ask(&Request::Ping, |reply| assert_eq!(reply, Reply::Pong));

    // A browser that is pointed at the port finds the page.
    browser.open(&url(&server));
    browser.wait_until(&row("orders/1"));
    assert_eq!(browser.run("return location.pathname"), json!("/ui/"));
    let shown = browser.run(&format!("return {}.innerText", row("orders/1")));
    let shown = shown.as_str().expect("a text");
    for part in ["worker-7", &fence.to_string(), "m "] {
        assert!(shown.contains(part), "{part} is not in {shown:?}");
    }
    let queue = browser.run(&format!("return {}.cells[5].innerText", row("orders/1")));
    assert_eq!(queue, json!("1"));
    assert_eq!(browser.text("#state"), "granting locks");

    // Keys, names and metadata are text, whatever they look like.
    let markup = browser.run(&format!("return {}.innerText", row(MARKUP)));
    let markup = markup.as_str().expect("a text");
    assert_eq!(markup.matches(MARKUP).count(), 3, "{markup}");

    // What is taken afterwards appears, and what is released goes.
    let second = holder.acquire("orders/2", 600_000);
    browser.wait_until(&row("orders/2"));
    assert!(holder.release("orders/2", second));
    browser.wait_until(&format!("!{}", row("orders/2")));

    // By keyboard: a slash, a prefix, Enter; then the key's button, and Escape.
    browser.press("/orders/");
    browser.press(ENTER);
    browser.wait_until(&format!("!{}", row(MARKUP)));
    assert_eq!(browser.text("#locks-rows tr:first-child td"), "orders/1");
    browser.run("document.querySelector('#locks-rows button').focus()");
    browser.press(ENTER);
    browser.wait_until("document.querySelector('#lock[open]')");
    assert_eq!(browser.text("#lock-key"), "orders/1");
    assert!(browser.text("#lock-holders").contains("worker-7"));
    assert!(browser.text("#lock-facts").contains("Waiting\n1"));
    // Taking it away has to be confirmed: the focus is on the button that does not.
    browser.run("document.querySelector('#lock-holders button').focus()");
    browser.press(ENTER);
    browser.wait_until("document.querySelector('#confirm[open]')");
    assert!(
        browser
            .text("#confirm-text")
            .contains("orders/1 is held by worker-7")
    );
    browser.press(ENTER);
    browser.wait_until("!document.querySelector('#confirm[open]')");
    assert!(
        browser.text("#lock-holders").contains("worker-7"),
        "it was kept"
    );
    browser.press(ESCAPE);
    browser.wait_until("!document.querySelector('#lock[open]')");
    let focused = browser.run("return document.activeElement.innerText");
    assert_eq!(focused, json!("orders/1"), "the focus is back");

    // And by keyboard again: it is taken away, its holder is told, and the next in line has it.
    browser.press(ENTER);
    browser.run("document.querySelector('#lock-holders button').focus()");
    browser.press(ENTER);
    browser.press(TAB);
    browser.press(ENTER);
    browser.wait_until("document.querySelector('#lock-answer').innerText.startsWith('Taken away')");
    assert_eq!(holder.push(), lost("orders/1", fence, LostReason::FORCED));
    browser.wait_until("document.querySelector('#lock-holders').innerText.includes('<img src=x')");

    // Its past is in the audit log, a moment later, and names of clients are text there too.
    browser.wait_until(
        "(document.querySelector('#history-read').click(), \
         document.querySelector('#history-rows').innerText.includes('loss: forced'))",
    );
    let past = browser.text("#history-rows");
    for part in ["grant", "force", "worker-7", MARKUP] {
        assert!(past.contains(part), "{part} is not in {past:?}");
    }
    browser.press(ESCAPE);

    // The other views.
    for (view, rows, expected) in [
        ("contended", "#contended-rows", "orders/1"),
        ("sessions", "#sessions-rows", "worker-7"),
        ("cluster", "#recovery-facts", "New locks are granted\nyes"),
    ] {
        browser.click(&format!("nav a[href='#{view}']"));
        let (rows, expected) = (json!(rows), json!(expected));
        let is_shown = format!("document.querySelector({rows}).innerText.includes({expected})");
        browser.wait_until(&is_shown);
    }
    browser.wait_until("document.querySelectorAll('#numbers .curve[d^=M]').length >= 3");

    // Light and dark are different, and both are there.
    let colours = ["light", "dark"].map(|scheme| {
        browser.prefer(scheme);
        browser.run("return getComputedStyle(document.body).backgroundColor")
    });
    assert_ne!(colours[0], colours[1]);
    assert_no_complaints(&browser);
}

#[test]
fn a_lock_is_taken_away_with_a_token_that_may_and_not_with_one_that_may_only_look() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let text = rights::entry("locker", "roles = [\"lock\"]")
        + &rights::entry("viewer", "roles = [\"read\"]")
        + &rights::entry("operator", "roles = [\"read\", \"operate\"]");
    let guarded = Guarded::start(&text);
    let token = rights::token("locker");
    let hello = Hello {
        token: Token::new(token.as_bytes()).expect("a token"),
        ..hello_for("worker-7", 600_000)
    };
    let mut holder = Peer::open(guarded.server.local_addr(), hello);
    let fence = holder.acquire("orders/1", 600_000);

    // The page asks for a token, and shows nothing before it has one.
    browser.open(&url(&guarded.server));
    browser.wait_until("document.querySelector('#token[open]')");
    assert_eq!(browser.text("#locks-rows"), "");
    let show = |name: &str| {
        browser.run("document.querySelector('#token-text').focus()");
        browser.press(&rights::token(name));
        browser.press(ENTER);
    };
    show("viewer");
    browser.wait_until(&row("orders/1"));
    let take_away = || {
        browser.click("#lock-holders button");
        browser.wait_until("document.querySelector('#confirm[open]')");
        browser.click("#confirm-yes");
    };
    browser.click("#locks-rows button");
    browser.wait_until("document.querySelector('#lock-holders button')");
    take_away();
    let says =
        |word: &str| format!("document.querySelector('#lock-answer').innerText.includes('{word}')");
    browser.wait_until(&says("does not have the role operate"));
    assert!(
        browser.text("#lock-holders").contains("worker-7"),
        "it was kept"
    );
    browser.press(ESCAPE);

    browser.click("#token-change");
    show("operator");
    browser.wait_until("document.querySelector('#notice').hidden");
    browser.click("#locks-rows button");
    browser.wait_until("document.querySelector('#lock-holders button')");
    take_away();
    browser.wait_until(&says("Taken away"));
    assert_eq!(holder.push(), lost("orders/1", fence, LostReason::FORCED));
    browser.wait_until(&format!("!{}", row("orders/1")));

    // The browser logs the two refusals, and nothing else went wrong.
    let log = browser.log();
    let is_refusal = |line: &String| ["401", "403"].iter().any(|status| line.contains(status));
    assert!(log.iter().all(is_refusal), "{log:?}");
    // The token is in this tab and nowhere else.
    assert_eq!(browser.run("return document.cookie"), json!(""));
    assert_eq!(browser.run("return localStorage.length"), json!(0));
}
