//! A trace that the caller names is found again in the server's audit log and in its log.

use crate::program::{Server, ask, await_condition, end, fencepost};
use serde_json::Value;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OPERATOR: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn traceparent_leads_to_the_grant_in_audit_log_and_log() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.log");
    let audit_log = format!("--audit-log={}", audit.display());
    let server = Server::start(&["--log-level=debug", &audit_log]);
    let lock = |key: &str, traceparent: &str| {
        let script = "echo $FENCEPOST_FENCE";
        let mut lock = fencepost(["lock", key, "--server", &server.address]);
        let lock = lock.env("TRACEPARENT", traceparent);
        let fence = end(lock.args(["--", "sh", "-c", script])).printed();
        fence.trim().parse::<u64>().unwrap()
    };
    let fence = lock("traced", TRACEPARENT);
    // An operator has a trace of its own, beside that of the holder.
    let mut hold = fencepost(["lock", "forced", "--detach", "--server", &server.address]);
    end(hold.env("TRACEPARENT", TRACEPARENT)).printed();
    let held = ask(&server, &["query", "forced"])["holders"][0]["fence"].to_string();
    let mut force = fencepost(["release", "forced", "--force", "--server", &server.address]);
    let force = force.args(["--fence", &held]);
    end(force.env("TRACEPARENT", OPERATOR)).printed();
    // Neither of these names a trace, and neither fails for it.
    lock("untraced", "");
    lock("too-long", &"0".repeat(65));

    let mut lines = Vec::new();
    let grants = |lines: &[Value]| -> Vec<Value> {
        let is_grant =
            |line: &&Value| line["key"] == "traced" && line.to_string().contains("grant");
        lines.iter().filter(is_grant).cloned().collect()
    };
    await_condition(|| {
        let text = std::fs::read_to_string(&audit).unwrap_or_default();
        lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        lines
            .iter()
            .any(|line: &Value| line.to_string().contains("too-long"))
    });
    let audited = grants(&lines);
    assert!(
        audited.iter().all(|line| line["trace_id"] == TRACEPARENT),
        "{audited:?}"
    );
    assert!(!audited.is_empty(), "{lines:?}");
    let mut untraced = lines.iter().filter(|line| line["trace_id"].is_null());
    assert!(untraced.all(|line| line["key"] != "traced"), "{lines:?}");
    let told = |key: &str, event: &str| {
        let is_told = |line: &&Value| line["key"] == key && line["event"] == event;
        let line = lines.iter().find(is_told);
        line.map_or(Value::Null, |line| line["trace_id"].clone())
    };
    assert_eq!(told("traced", "release"), TRACEPARENT, "{lines:?}");
    assert_eq!(told("forced", "loss"), TRACEPARENT, "{lines:?}");
    assert_eq!(told("forced", "force"), OPERATOR, "{lines:?}");
    for key in ["untraced", "too-long"] {
        assert_eq!(told(key, "grant"), Value::Null, "{lines:?}");
    }

    let log = audit.display().to_string();
    let arguments = ["audit", "forced", "--since", "1h", "--log", &log];
    let story = end(&mut fencepost(arguments)).stdout;
    for trace in [TRACEPARENT, OPERATOR] {
        assert!(story.contains(&format!("trace {trace}")), "{story}");
    }

    await_condition(|| !grants(&server.log()).is_empty());
    let logged = grants(&server.log());
    assert_eq!(logged[0]["trace_id"], TRACEPARENT, "{logged:?}");
    assert_eq!(logged[0]["fence"], fence, "{logged:?}");
}
