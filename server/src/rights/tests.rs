use super::*;
use protocol::limits::TOKEN_BYTES_MAX;
use std::path::PathBuf;

const OLD: &str = "0123456789abcdef";
const NEW: &str = "fedcba9876543210fedcba9876543210";

/// A directory with the two files, and the settings that name them.
struct Files {
    _directory: tempfile::TempDir,
    config: Config,
}

impl Files {
    fn new() -> Self {
        Files {
            _directory: tempfile::tempdir().unwrap(),
            config: Config::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self._directory.path().join(name)
    }

    fn tokens(mut self, text: &str) -> Self {
        let path = self.path("tokens");
        std::fs::write(&path, text).unwrap();
        self.config.auth_token_file = Some(path);
        self
    }

    fn rights(mut self, text: &str) -> Self {
        let path = self.path("rights.toml");
        std::fs::write(&path, text).unwrap();
        self.config.auth_file = Some(path);
        self
    }

    fn load(&self) -> Result<Rights, AuthError> {
        Rights::load(&self.config)
    }
}

fn tokens(text: &str) -> Result<Rights, AuthError> {
    Files::new().tokens(text).load()
}

fn rights(text: &str) -> Rights {
    Files::new().rights(text).load().unwrap()
}

/// What is wrong with a file, without its path.
fn complaint(text: &str) -> String {
    let error = Files::new().rights(text).load().unwrap_err().to_string();
    let at = error.find("rights.toml").expect("it names the file");
    error[at..].to_owned()
}

fn hex(token: &str) -> String {
    let digest = digest(token.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn entry(name: &str, token: &str, rest: &str) -> String {
    let sha256 = hex(token);
    format!("[[token]]\nname = {name:?}\nsha256 = \"{sha256}\"\n{rest}\n")
}

mod token_files {
    use super::*;

    #[test]
    fn every_token_of_the_file_is_accepted_and_has_all_rights() {
        let tokens = tokens(&format!("# old\n{OLD}\n\n  {NEW}\r\n")).unwrap();
        assert!(tokens.is_required());
        for token in [OLD, NEW] {
            let found = tokens.of_token(token.as_bytes()).unwrap();
            assert!(!found.is_bounded() && found.may_operate());
            assert_eq!(&**found.name(), TOKEN_FILE_NAME);
        }
        for stranger in [
            "",
            "# old",
            &OLD[1..],
            &format!("{OLD} "),
            &format!("{OLD}{NEW}"),
        ] {
            assert!(
                tokens.of_token(stranger.as_bytes()).is_none(),
                "{stranger:?}"
            );
        }
    }

    #[test]
    fn a_file_that_is_read_again_replaces_the_tokens_and_a_bad_one_does_not() {
        let files = Files::new().tokens(OLD);
        let path = files.path("tokens");
        let tokens = files.load().unwrap();
        let reload = || tokens.reload(&files.config);
        let accepts = |token: &str| tokens.of_token(token.as_bytes()).is_some();
        let change = |added, removed, count| {
            Some(Change {
                added,
                removed,
                count,
                altered: 0,
            })
        };
        std::fs::write(&path, format!("{OLD}\n{NEW}\n")).unwrap();
        assert_eq!(reload().unwrap(), change(1, 0, 2));
        assert!(accepts(OLD) && accepts(NEW));
        std::fs::write(&path, NEW).unwrap();
        assert_eq!(reload().unwrap(), change(0, 1, 1));
        assert!(!accepts(OLD) && accepts(NEW));
        let generation = tokens.generation();
        for bad in ["", "# none\n", "short\n"] {
            std::fs::write(&path, bad).unwrap();
            assert!(reload().is_err(), "{bad:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(reload().is_err());
        assert!(tokens.is_required() && accepts(NEW));
        assert_eq!(tokens.generation(), generation);
    }

    #[test]
    fn without_a_file_everything_is_allowed() {
        let none = Rights::load(&Config::default()).unwrap();
        assert!(!none.is_required());
        for token in [&b""[..], b"anything"] {
            assert!(!none.of_token(token).unwrap().is_bounded());
        }
        assert!(!none.of_stranger().is_bounded() && !none.of_local_reader().is_bounded());
        assert_eq!(none.reload(&Config::default()).unwrap(), None);
    }

    #[test]
    fn a_file_without_tokens_is_refused() {
        for text in ["", "\n\n", "# nothing here\n"] {
            assert!(matches!(tokens(text), Err(AuthError::Empty { .. })));
        }
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused_without_being_shown() {
        let text = tokens(&format!("{OLD}\nhunter2\n"))
            .unwrap_err()
            .to_string();
        assert!(
            text.ends_with("tokens:2: the token has 7 bytes, 16 to 256 are allowed"),
            "{text}"
        );
    }

    #[test]
    fn a_token_that_no_hello_can_carry_is_refused() {
        assert!(tokens(&"x".repeat(TOKEN_BYTES_MAX)).is_ok());
        assert!(matches!(
            tokens(&"x".repeat(TOKEN_BYTES_MAX + 1)),
            Err(AuthError::TokenLength { line: 1, .. })
        ));
    }

    #[test]
    fn there_is_a_bound_on_tokens() {
        let most = token_file::TOKENS_MAX;
        let many: Vec<String> = (0..=most).map(|i| format!("{OLD}{i}")).collect();
        assert!(tokens(&many[1..].join("\n")).is_ok());
        let error = tokens(&many.join("\n")).unwrap_err();
        assert!(matches!(error, AuthError::TooMany { .. }));
    }

    #[test]
    fn tokens_are_not_printed() {
        assert_eq!(format!("{:?}", tokens(NEW).unwrap()), "1 tokens, hidden");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_everybody_can_read_is_noticed() {
        use std::os::unix::fs::PermissionsExt;
        let files = Files::new().tokens(NEW);
        let path = files.path("tokens");
        for (mode, is_noticed) in [(0o600, false), (0o640, false), (0o644, true)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let found = mode_of(&std::fs::metadata(&path).unwrap());
            assert_eq!(found.is_world_readable, is_noticed, "{mode:o}");
            assert!(files.load().is_ok());
        }
    }

    #[test]
    fn a_missing_file_and_a_huge_one_are_refused() {
        let mut files = Files::new();
        let path = files.path("tokens");
        files.config.auth_token_file = Some(path.clone());
        let error = files.load().unwrap_err();
        assert!(matches!(error, AuthError::Unreadable { .. }));
        let bytes = token_file::FILE_BYTES_MAX as usize + 1;
        std::fs::write(&path, vec![b'\n'; bytes]).unwrap();
        let error = files.load().unwrap_err();
        assert!(matches!(error, AuthError::TooLarge { .. }));
    }
}

mod rights_files {
    use super::*;

    #[test]
    fn roles_and_prefixes_bound_what_a_token_may_do() {
        let text = entry(
            "orders",
            OLD,
            "roles = [\"lock\"]\nprefixes = [\"orders/\"]",
        ) + &entry("watcher", NEW, "roles = [\"read\"]");
        let rights = rights(&text);
        let orders = rights.of_token(OLD.as_bytes()).unwrap();
        assert!(orders.is_bounded() && &**orders.name() == "orders");
        assert!(orders.may_lock(b"orders/1") && orders.may_lock(b"orders/"));
        for outside in [
            &b"orders"[..],
            b"order",
            b"Orders/1",
            b"{orders/1}",
            b"x/orders/1",
        ] {
            assert!(!orders.may_lock(outside), "{}", outside.escape_ascii());
        }
        assert!(!orders.may_read(b"orders/1") && !orders.may_force(b"orders/1"));
        let watcher = rights.of_token(NEW.as_bytes()).unwrap();
        assert!(watcher.may_read(b"orders/1") && watcher.may_read_all());
        assert!(!watcher.may_lock(b"orders/1") && !watcher.may_operate());
        assert!(rights.of_token(b"").is_none());
        // The file says who may look, also from the own machine.
        assert!(!rights.of_local_reader().has(Role::Read));
        assert!(!rights.of_stranger().has(Role::Read));
    }

    #[test]
    fn operating_needs_all_keys_unless_it_names_one() {
        let text = entry(
            "ops",
            OLD,
            "roles = [\"operate\", \"read\"]\nprefixes = [\"a/\"]",
        );
        let ops = rights(&text).of_token(OLD.as_bytes()).unwrap();
        assert!(ops.may_force(b"a/1") && !ops.may_force(b"b/1"));
        assert!(!ops.may_operate() && !ops.may_read_all());
    }

    #[test]
    fn a_prefix_holds_in_every_database_of_the_redis_port() {
        let text = entry(
            "orders",
            OLD,
            "roles = [\"lock\"]\nprefixes = [\"orders/\"]",
        );
        let orders = rights(&text).of_token(OLD.as_bytes()).unwrap();
        assert!(orders.may_lock(b"\0\x03orders/1"));
        for outside in [
            &b"\0\x03other"[..],
            b"\0\x10orders/1",
            b"\0",
            b"\0\x03",
            b"\0\x03\0\x03orders/1",
        ] {
            assert!(!orders.may_lock(outside), "{}", outside.escape_ascii());
        }
    }

    #[test]
    fn a_listing_is_for_prefixes_that_meet() {
        let text = entry("a", OLD, "roles = [\"read\"]\nprefixes = [\"orders/eu/\"]");
        let reader = rights(&text).of_token(OLD.as_bytes()).unwrap();
        for inside in [&b""[..], b"o", b"orders/", b"orders/eu/", b"orders/eu/7"] {
            assert!(reader.may_list(inside), "{}", inside.escape_ascii());
        }
        for outside in [&b"x"[..], b"orders/us", b"orders/eu7"] {
            assert!(!reader.may_list(outside), "{}", outside.escape_ascii());
        }
    }

    #[test]
    fn one_name_may_have_several_tokens_if_they_agree() {
        let same = "roles = [\"lock\"]\nprefixes = [\"b/\", \"a/\"]";
        let other_order = "roles = [\"lock\"]\nprefixes = [\"a/\", \"b/\"]";
        let found = rights(&(entry("a", OLD, same) + &entry("a", NEW, other_order)));
        for token in [OLD, NEW] {
            assert_eq!(&**found.of_token(token.as_bytes()).unwrap().name(), "a");
        }
        let text = entry("a", OLD, same) + &entry("a", NEW, "roles = [\"read\"]");
        assert_eq!(
            complaint(&text),
            "rights.toml:7: \"a\" stands in line 2 with other rights: entries of one name must agree"
        );
    }

    #[test]
    fn certificates_are_found_by_name() {
        let text = "[[certificate]]\nname = \"Billing.internal\"\nroles = [\"lock\"]\n";
        let rights = rights(text);
        let found = rights
            .of_certificate(&["other", "billing.INTERNAL"])
            .unwrap();
        assert_eq!(&**found.name(), "Billing.internal");
        assert!(rights.of_certificate(&["billing"]).is_none());
        assert!(rights.of_certificate::<&str>(&[]).is_none());
        assert!(rights.of_token(b"").is_none());
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let good = entry("a", OLD, "roles = [\"lock\"]");
        for (text, at, why) in [
            ("[[token]]\nname = 3\n".to_owned(), 2, "invalid type"),
            (
                format!("{good}colour = \"red\"\n"),
                5,
                "unknown field `colour`",
            ),
            (
                format!("{good}\n[[user]]\nname = \"b\"\n"),
                6,
                "unknown field `user`",
            ),
            (
                entry("a", OLD, "roles = [\"loc\"]"),
                4,
                "unknown variant `loc`",
            ),
            (entry("a", OLD, "roles = []"), 4, "without a role"),
            (entry("a", OLD, ""), 1, "missing field `roles`"),
            (entry("", OLD, "roles = [\"lock\"]"), 2, "1 to 64 bytes"),
            (
                entry("a\nb", OLD, "roles = [\"lock\"]"),
                2,
                "cannot be a name",
            ),
            (
                entry("auth_token_file", OLD, "roles = [\"lock\"]"),
                2,
                "cannot be a name",
            ),
            (
                entry("a", OLD, "roles = [\"lock\"]\nprefixes = []"),
                5,
                "leave `prefixes` out",
            ),
            (
                entry("a", OLD, "roles = [\"lock\"]\nprefixes = [\"x\",\n\"\"]"),
                6,
                "every key",
            ),
            (
                entry("a", OLD, "roles = [\"lock\"]\nprefixes = [\"\\u0000\"]"),
                5,
                "zero byte",
            ),
            (
                "[[token]]\nname = \"a\"\nroles = [\"lock\"]\n".to_owned(),
                2,
                "needs sha256",
            ),
            (
                format!("[[token]]\nname = \"a\"\nsha256 = \"{NEW}\"\nroles = [\"lock\"]"),
                3,
                "64 hex",
            ),
            (
                format!("{good}{}", entry("b", OLD, "roles = [\"lock\"]")),
                7,
                "another entry",
            ),
            ("nonsense\n".to_owned(), 1, ""),
        ] {
            let complaint = complaint(&text);
            let start = format!("rights.toml:{at}: ");
            assert!(complaint.starts_with(&start), "{text}\n{complaint}");
            assert!(complaint.contains(why), "{text}\n{complaint}");
            assert!(
                !complaint.contains(NEW),
                "a token by mistake is not shown: {complaint}"
            );
        }
        assert!(matches!(
            Files::new().rights("# nothing\n").load(),
            Err(AuthError::Empty { .. })
        ));
    }

    #[test]
    fn quotas_are_read_and_their_mistakes_are_told() {
        let held = entry("a", OLD, "roles = [\"lock\"]\nheld_max = 3");
        assert!(rights(&held).of_token(OLD.as_bytes()).unwrap().is_bounded());
        let all = "roles = [\"lock\", \"read\", \"operate\"]";
        let with_prefix = entry("a", OLD, all) + "[[prefix]]\nprefix = \"p/\"\nheld_max = 1\n";
        assert!(
            !rights(&entry("a", OLD, all))
                .of_token(OLD.as_bytes())
                .unwrap()
                .is_bounded()
        );
        let everyone = rights(&with_prefix).of_token(OLD.as_bytes()).unwrap();
        assert!(everyone.is_bounded(), "a prefix bounds all names");
        for (rest, at, why) in [
            ("held_max = 0", 5, "1 to 1000000000"),
            ("held_max = -1", 5, "invalid value"),
            ("waiters_max = \"many\"", 5, "invalid type"),
            ("operations_per_second = 2000000000", 5, "1 to 1000000000"),
            ("[[prefix]]\nprefix = \"p\"", 6, "held_max or waiters_max"),
            (
                "[[prefix]]\nprefix = \"p\"\noperations_per_second = 3",
                7,
                "unknown field",
            ),
            ("[[prefix]]\nprefix = \"\"\nheld_max = 3", 6, "every key"),
        ] {
            let complaint = complaint(&entry(
                "a",
                OLD,
                &format!("{}\n{rest}", "roles = [\"lock\"]"),
            ));
            assert!(
                complaint.starts_with(&format!("rights.toml:{at}: ")),
                "{rest}\n{complaint}"
            );
            assert!(complaint.contains(why), "{rest}\n{complaint}");
        }
    }

    #[test]
    fn what_is_used_of_a_quota_outlives_a_change_of_the_file() {
        let with = |most| entry("a", OLD, &format!("roles = [\"lock\"]\nheld_max = {most}"));
        let files = Files::new().rights(&with(1));
        let rights = files.load().unwrap();
        let of_a = || rights.of_token(OLD.as_bytes()).unwrap();
        let first = of_a().reserve(b"k").unwrap();
        assert!(of_a().reserve(b"k").is_err());
        std::fs::write(files.path("rights.toml"), with(2)).unwrap();
        rights.reload(&files.config).unwrap();
        let second = of_a().reserve(b"k").unwrap();
        let exceeded = of_a().reserve(b"k").unwrap_err();
        assert_eq!(
            exceeded.to_string(),
            "the quota held_max = 2 of a is used up"
        );
        drop(first);
        drop(of_a().reserve(b"k").unwrap());
        let holdings = Holdings::default();
        holdings.insert(b"k", 7, second);
        holdings.insert(b"k", 8, of_a().reserve(b"k").unwrap());
        assert!(of_a().reserve(b"k").is_err());
        holdings.remove(b"k", 9);
        holdings.remove(b"other", 7);
        assert_eq!(holdings.count(), 2);
        holdings.remove(b"k", 7);
        drop(of_a().reserve(b"k").unwrap());
        holdings.remove(b"k", 8);
        assert_eq!(holdings.count(), 0);
    }

    #[test]
    fn operations_are_paid_for_and_a_second_of_them_is_saved_up() {
        use engine::Tick;
        let text = entry("a", OLD, "roles = [\"lock\"]\noperations_per_second = 10");
        let a = rights(&text).of_token(OLD.as_bytes()).unwrap();
        let asked = |at_ms: u64| {
            let now = Tick::from_ms(at_ms);
            (0..100).filter(|_| a.charge(now, false).is_ok()).count()
        };
        assert_eq!(asked(5_000), 10, "a second's worth at once");
        assert_eq!(asked(5_000), 0);
        assert_eq!(asked(5_100), 1);
        let retry_after_ms = a
            .charge(Tick::from_ms(5_100), false)
            .unwrap_err()
            .retry_after_ms;
        assert_eq!(retry_after_ms, 100);
        assert_eq!(asked(60_000), 10, "and no more after a long silence");
        // What must be done is done, and paid for later, within bounds.
        for _ in 0..1_000 {
            assert!(a.charge(Tick::from_ms(60_000), true).is_ok());
        }
        assert_eq!(asked(61_000), 0);
        assert_eq!(asked(62_000), 10);
    }

    #[test]
    fn a_file_that_is_read_again_changes_what_a_name_may_do() {
        let files = Files::new().rights(&entry("a", OLD, "roles = [\"lock\"]"));
        let rights = files.load().unwrap();
        let path = files.path("rights.toml");
        std::fs::write(&path, entry("a", NEW, "roles = [\"read\"]")).unwrap();
        let change = rights.reload(&files.config).unwrap().unwrap();
        assert_eq!((change.added, change.removed, change.altered), (1, 1, 1));
        assert!(rights.of_token(OLD.as_bytes()).is_none());
        assert!(rights.of_name("a").unwrap().has(Role::Read));
        std::fs::write(&path, entry("b", NEW, "roles = [\"read\"]")).unwrap();
        rights.reload(&files.config).unwrap();
        assert!(rights.of_name("a").is_none());
        assert_eq!(rights.generation(), 2);
    }
}

#[test]
fn a_log_line_has_no_empty_name() {
    let name_of = |name| {
        Entitlement::everything(name)
            .shown_name()
            .map(str::to_owned)
    };
    assert_eq!(name_of("chief").as_deref(), Some("chief"));
    assert_eq!(name_of(""), None);
}
