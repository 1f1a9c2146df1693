//! What `deploy/` has for operators, against the real program: settings, containers, man pages,
//! completions. `deploy/debian/test` installs the package.

use crate::program::{Server, end, run};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(file)
}

#[test]
fn every_command_has_a_man_page() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("share/man1");
    run(["man".as_ref(), pages.as_os_str()]).printed();
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
    let first = page("fencepost.1");
    assert!(first.starts_with(".ie"), "troff, not {first:.20}");
    let help = run(["--help"]).printed();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(
        names.contains(&"serve") && names.contains(&"lock"),
        "{help}"
    );
    for name in names {
        assert!(page(&format!("fencepost-{name}.1")).contains("SYNOPSIS"));
    }
    assert!(page("fencepost-serve.1").contains(r"\-\-durability"));

    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let complaint = run(["man".as_ref(), file.as_os_str()]).complained(1);
    assert!(complaint.contains("cannot write man pages"), "{complaint}");
}

#[test]
fn completions_know_commands_and_settings() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(["completions", shell]).printed();
        for word in ["dev-cluster", "durability", "force"] {
            assert!(script.contains(word), "{word} for {shell}");
        }
    }
    let complaint = run(["completions", "cmd"]).complained(2);
    assert!(complaint.contains("bash"), "{complaint}");
}

#[test]
fn the_installed_settings_are_good_ones() {
    let data = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", data.path().join("data").display());
    let config = deploy("fencepost.toml");
    let free = ["--listen=127.0.0.1:0", "--http=127.0.0.1:0", &data_dir];
    let check = ["serve", "--check-config", "--config"];
    let check = check.iter().map(|word| word.as_ref());
    let all = check.chain([config.as_os_str()]);
    let all = all.chain(free.iter().map(|word| word.as_ref()));
    assert_eq!(run(all).printed(), "ok\n");

    // So are those that stand there as comments.
    let text = std::fs::read_to_string(&config).unwrap();
    let mut all = String::new();
    for line in text.lines() {
        let setting = line.strip_prefix('#').filter(|rest| !rest.starts_with(' '));
        all.push_str(setting.unwrap_or(line));
        all.push('\n');
    }
    let file = data.path().join("all.toml");
    std::fs::write(&file, all).unwrap();
    let printed = run([
        "serve",
        "--print-config",
        "--config",
        file.to_str().unwrap(),
    ])
    .printed();
    assert!(
        printed.contains("redis_listen = \"127.0.0.1:6380\""),
        "{printed}"
    );
}

/// Commands of the compose file, one for each node.
fn node_commands(compose: &str) -> Vec<Vec<String>> {
    compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("command: "))
        .map(|list| serde_json::from_str(list).expect("one line, as a JSON list"))
        .collect()
}

#[test]
fn the_nodes_of_the_compose_file_would_start() {
    let compose = std::fs::read_to_string(deploy("docker/compose.yaml")).unwrap();
    let commands = node_commands(&compose);
    assert_eq!(commands.len(), 3);
    let directory = tempfile::tempdir().unwrap();
    let secret = |name: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, format!("{}\n", "5e".repeat(32))).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).unwrap();
        path.display().to_string()
    };
    let (key, tokens) = (secret("cluster_key"), secret("tokens"));
    for (index, command) in commands.iter().enumerate() {
        let id = index + 1;
        assert_eq!(command[0], "serve");
        assert!(command.contains(&format!("--node-id={id}")), "{command:?}");
        // The files and ports of this machine instead of the container's.
        let data = directory.path().join(format!("data-{id}"));
        let arguments = command.iter().map(|argument| {
            argument
                .replace("/run/secrets/cluster_key", &key)
                .replace("/run/secrets/tokens", &tokens)
                .replace("/var/lib/fencepost", data.to_str().unwrap())
                .replace("--listen=0.0.0.0:7400", "--listen=0.0.0.0:0")
                .replace("--http=0.0.0.0:7401", "--http=0.0.0.0:0")
                .replace("--peer-listen=0.0.0.0:7500", "--peer-listen=127.0.0.1:0")
        });
        let arguments: Vec<String> = arguments.chain(["--check-config".to_owned()]).collect();
        assert_eq!(run(&arguments).printed(), "ok\n", "{arguments:?}");
    }
    // The image is named after the version that is built.
    let image = format!("image: fencepost:{}", env!("CARGO_PKG_VERSION"));
    assert!(compose.contains(&image), "{image}");
}

#[test]
fn the_health_check_of_the_image_tells_a_server_from_none() {
    let server = Server::start(&["--http=127.0.0.1:0", "--durability=none"]);
    let log = server.log();
    let http = log
        .iter()
        .find(|line| line["message"] == "metrics, health and locks over HTTP")
        .and_then(|line| line["address"].as_str())
        .expect("HTTP is logged before the server is ready");
    let port = http.rsplit(':').next().unwrap().to_owned();
    let check = |port: &str| end(Command::new(deploy("docker/healthcheck")).arg(port)).code;
    assert_eq!(check(&port), Some(0));
    // A port that was free a moment ago.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_port = closed.local_addr().unwrap().port().to_string();
    drop(closed);
    assert_eq!(check(&closed_port), Some(1));
}
