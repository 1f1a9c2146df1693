//! A headless Chromium, driven through chromedriver: the few commands of the WebDriver protocol
//! that the tests need, as JSON over HTTP to this machine.

use crate::common::PATIENCE;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A page is looked at so often while something is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// How long one command may take. A browser that starts on a busy machine takes its time.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Keys that are not characters, as the protocol writes them.
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const TAB: &str = "\u{e004}";

/// What tells an element of the page from other JSON.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with a profile of its own. Ends with its owner.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts one. `None`: there is none on this machine, and a complaint has been printed.
    pub(crate) fn start() -> Option<Browser> {
        let chromium = find("chromium");
        let spawned = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let (Some(chromium), Ok(mut driver)) = (chromium, spawned) else {
            say_that_it_is_missing();
            return None;
        };
        let mut said = BufReader::new(driver.stdout.take().expect("it is piped"));
        let port = port_of(&mut said);
        // It must not stop at a full pipe.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let profile = TempDir::new().expect("a temporary directory");
        let mut browser = Browser {
            driver,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            session: String::new(),
            _profile: profile,
        };
        let profile = browser._profile.path().display().to_string();
        let session = browser.command(
            "POST",
            "/session",
            &json!({"capabilities": {"alwaysMatch": {
                "browserName": "chrome",
                "goog:loggingPrefs": {"browser": "ALL"},
                "goog:chromeOptions": {
                    "binary": chromium,
                    "args": [
                        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
                        "--no-first-run", "--disable-background-networking",
                        "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
                        "--window-size=1280,900", format!("--user-data-dir={profile}"),
                    ],
                },
            }}}),
        );
        browser.session = session["sessionId"].as_str().expect("an id").to_owned();
        Some(browser)
    }

    pub(crate) fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({"url": url}));
    }

    /// Runs a script in the page and returns its value.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Value {
        let body = json!({"script": script, "args": []});
        self.ask("POST", "/execute/sync", &body)
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub(crate) fn wait_until(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({expression})")) != json!(true) {
            assert!(
                Instant::now() < deadline,
                "it never came true: {expression}\n{}\n{:?}",
                self.run("return document.body.innerText"),
                self.log(),
            );
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The text that a person sees of the first element that a selector finds.
    pub(crate) fn text(&self, selector: &str) -> String {
        let selector = json!(selector);
        let text = self.run(&format!(
            "return document.querySelector({selector}).innerText"
        ));
        text.as_str().expect("a text").to_owned()
    }

    pub(crate) fn click(&self, selector: &str) {
        let body = json!({"using": "css selector", "value": selector});
        let found = self.ask("POST", "/element", &body);
        let id = found[ELEMENT].as_str().expect("an element");
        self.ask("POST", &format!("/element/{id}/click"), &json!({}));
    }

    /// Presses keys one after the other, wherever the focus is.
    pub(crate) fn press(&self, keys: &str) {
        let presses: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                let key = key.to_string();
                [
                    json!({"type": "keyDown", "value": key}),
                    json!({"type": "keyUp", "value": key}),
                ]
            })
            .collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": presses});
        self.ask("POST", "/actions", &json!({"actions": [keyboard]}));
    }

    /// What the browser has complained of since the last call.
    pub(crate) fn log(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", &json!({"type": "browser"}));
        let lines = log.as_array().expect("a list").iter();
        lines
            .map(|line| format!("{} {}", line["level"], line["message"]))
            .collect()
    }

    /// Shows the page as on a screen that is dark, or light.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let params = json!({"features": features});
        let body = json!({"cmd": "Emulation.setEmulatedMedia", "params": params});
        self.ask("POST", "/goog/cdp/execute", &body);
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.command(method, &format!("/session/{}{path}", self.session), body)
    }

    #[track_caller]
    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.try_command(method, path, body);
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        assert!(
            answer["value"]["error"].is_null(),
            "{method} {path} {body}: {answer}"
        );
        answer["value"].clone()
    }

    fn try_command(&self, method: &str, path: &str, body: &Value) -> std::io::Result<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(COMMAND_TIMEOUT))?;
        let body = body.to_string();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        // It may leave the connection open, so its answer is as long as it says.
        let mut stream = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
            if line.trim_end().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser. The driver would leave it running if it were killed first.
        let path = format!("/session/{}", self.session);
        let _ = self.try_command("DELETE", &path, &json!({}));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The port that the driver says it has.
fn port_of(said: &mut impl BufRead) -> u16 {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        let read = said.read_line(&mut line).expect("it speaks UTF-8");
        assert!(read > 0, "chromedriver ended: {all}");
        all.push_str(&line);
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            let digits = port.trim_end().trim_end_matches('.');
            return digits.parse().expect("a port");
        }
    }
}

/// The file of a program.
fn find(program: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let files = std::env::split_paths(&path).map(|folder| folder.join(program));
    let found = files.into_iter().find(|file| file.is_file())?;
    Some(found.display().to_string())
}

fn say_that_it_is_missing() {
    let complaint = "\n\
        ###########################################################################\n\
        # NOT TESTED: there is no chromium or no chromedriver on this machine.    #\n\
        # The operator's page was not looked at. Install them to test that too:   #\n\
        #     apt-get install chromium chromium-driver                            #\n\
        ###########################################################################\n";
    // Past the capture of the test harness, which would hide it while the test passes.
    let stderr = std::fs::OpenOptions::new().append(true).open("/dev/stderr");
    let written = stderr.and_then(|mut stderr| stderr.write_all(complaint.as_bytes()));
    if written.is_err() {
        eprintln!("{complaint}");
    }
}
