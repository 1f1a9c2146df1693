//! How the value of a setting is written: each kind of value parses text and shows itself as TOML.
//!
//! A flag, an environment variable and a TOML value all arrive here as text, so that one sentence
//! about what is wrong serves all three. Whatever `show` writes, `parse` reads back.

use super::peers::{Peers, is_host_and_port};
use super::{ClientAuth, Durability, LogFormat, LogLevel, TlsPorts};
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tls::VersionMin;

/// The word for "without it", where a setting can be left out.
const OFF: &str = "off";

/// One way to write values of type `T`.
pub(super) struct Kind<T> {
    /// What stands for the value in the help.
    pub(super) metavar: &'static str,
    /// The value, or a sentence that says what is wrong and what would be right.
    pub(super) parse: fn(&str) -> Result<T, String>,
    /// The value as people read it; quoted it is the value in TOML as well.
    pub(super) show: fn(&T) -> String,
    /// Whether TOML wants it in quotes.
    pub(super) is_quoted: bool,
}

impl<T> Kind<T> {
    pub(super) fn to_toml(&self, value: &T) -> String {
        let text = (self.show)(value);
        if self.is_quoted {
            toml::Value::String(text).to_string()
        } else {
            text
        }
    }

    /// Whether the value lies in the range that the table of settings gives for it.
    pub(super) fn check(&self, value: &T, range: Option<RangeInclusive<T>>) -> Result<(), String>
    where
        T: PartialOrd,
    {
        match range {
            Some(range) if !range.contains(value) => Err(format!(
                "{} is out of range, {} to {} are allowed",
                (self.show)(value),
                (self.show)(range.start()),
                (self.show)(range.end()),
            )),
            _ => Ok(()),
        }
    }
}

/// An address and a port.
pub(super) const ADDRESS: Kind<SocketAddr> = Kind {
    metavar: "ADDR",
    parse: parse_address,
    show: SocketAddr::to_string,
    is_quoted: true,
};

/// An address and a port, or `off`.
pub(super) const ADDRESS_OR_OFF: Kind<Option<SocketAddr>> = Kind {
    metavar: "ADDR|off",
    parse: |text| parse_or_off(text, parse_address).map_err(|problem| problem + ", or off"),
    show: |address| address.map_or_else(|| OFF.to_owned(), |address| address.to_string()),
    is_quoted: true,
};

/// A path, relative to where the server is started.
pub(super) const PATH: Kind<PathBuf> = Kind {
    metavar: "PATH",
    parse: parse_path,
    show: |path| path.display().to_string(),
    is_quoted: true,
};

/// A path, or `off`. A file of that name is `./off`.
pub(super) const PATH_OR_OFF: Kind<Option<PathBuf>> = Kind {
    metavar: "PATH",
    parse: |text| parse_or_off(text, parse_path),
    show: |path| match path {
        Some(path) => path.display().to_string(),
        None => OFF.to_owned(),
    },
    is_quoted: true,
};

/// A name of the length that fits into a `Welcome`.
pub(super) const SERVER_NAME: Kind<String> = Kind {
    metavar: "NAME",
    parse: |text| Ok(text.to_owned()),
    show: String::clone,
    is_quoted: true,
};

/// The nodes of a cluster.
pub(super) const PEERS: Kind<Peers> = Kind {
    metavar: "ID=HOST:PORT,...",
    parse: Peers::parse,
    show: Peers::to_string,
    is_quoted: true,
};

/// Ports that speak TLS.
pub(super) const TLS_PORTS: Kind<TlsPorts> = Kind {
    metavar: "PORT,...",
    parse: TlsPorts::parse,
    show: TlsPorts::to_string,
    is_quoted: true,
};

/// The longest name of a master.
const MASTER_NAME_BYTES_MAX: usize = 128;

/// The name of a master, as clients of Sentinel say it.
pub(super) const MASTER_NAME: Kind<String> = Kind {
    metavar: "NAME",
    parse: |text| {
        let fits = (1..=MASTER_NAME_BYTES_MAX).contains(&text.len());
        match fits && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(text.to_owned()),
            false => Err(format!(
                "{text:?} is no name of a master: 1 to {MASTER_NAME_BYTES_MAX} letters, digits and signs, no spaces"
            )),
        }
    },
    show: String::clone,
    is_quoted: true,
};

/// A host and a port, or nothing.
pub(super) const HOST: Kind<String> = Kind {
    metavar: "HOST:PORT",
    parse: |text| match text.is_empty() || is_host_and_port(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is no host and port, like 10.0.0.1:7400")),
    },
    show: String::clone,
    is_quoted: true,
};

/// `true` or `false`.
pub(super) const SWITCH: Kind<bool> = Kind {
    metavar: "true|false",
    parse: |text| {
        text.parse()
            .map_err(|_| format!("{text:?} is neither true nor false"))
    },
    show: bool::to_string,
    is_quoted: false,
};

/// Something that is on or off.
pub(super) const ON_OFF: Kind<bool> = Kind {
    metavar: "on|off",
    parse: |text| match text {
        "on" | "true" => Ok(true),
        OFF | "false" => Ok(false),
        _ => Err(format!("{text:?} is neither on nor off")),
    },
    show: |is_on| if *is_on { "on" } else { OFF }.to_owned(),
    is_quoted: true,
};

/// A length of time.
pub(super) const TIME: Kind<Duration> = Kind {
    metavar: "TIME",
    parse: parse_time,
    show: |time| show_time(*time),
    is_quoted: true,
};

/// A length of time that may be shorter than a millisecond.
pub(super) const SHORT_TIME: Kind<Duration> = Kind {
    metavar: "TIME",
    parse: |text| match text.strip_suffix("us").map(str::parse) {
        Some(Ok(us)) => Ok(Duration::from_micros(us)),
        _ => parse_time(text),
    },
    show: |time| match time.subsec_micros() % 1_000 {
        0 => show_time(*time),
        _ => format!("{}us", time.as_micros()),
    },
    is_quoted: true,
};

/// A number of bytes.
pub(super) const fn size<T: TryFrom<u64> + TryInto<u64> + Copy>() -> Kind<T> {
    Kind {
        metavar: "SIZE",
        parse: |text| {
            T::try_from(parse_size(text)?)
                .map_err(|_| format!("{text:?} is more than this machine can count"))
        },
        show: |bytes| show_size((*bytes).try_into().unwrap_or(u64::MAX)),
        is_quoted: true,
    }
}

/// A plain number.
pub(super) const fn count<T: FromStr + Display>() -> Kind<T> {
    Kind {
        metavar: "N",
        parse: |text| {
            text.replace('_', "")
                .parse()
                .map_err(|_| format!("{text:?} is not a whole number that fits here"))
        },
        show: T::to_string,
        is_quoted: false,
    }
}

/// One of a few words.
macro_rules! words {
    ($kind:ident: $type:ident, $metavar:literal, $($word:literal => $variant:ident),+) => {
        #[doc = concat!("One of ", $metavar, ".")]
        pub(super) const $kind: Kind<$type> = Kind {
            metavar: $metavar,
            parse: |text| match text {
                $($word => Ok($type::$variant),)+
                _ => Err(format!("{text:?} is unknown, {} are allowed", [$($word),+].join(", "))),
            },
            show: |value| match value {
                $($type::$variant => $word.to_owned(),)+
            },
            is_quoted: true,
        };
    };
}

words! { DURABILITY: Durability, "none|fence|lease", "none" => None, "fence" => Fence, "lease" => Lease }
words! { CLIENT_AUTH: ClientAuth, "off|optional|required", "off" => Off, "optional" => Optional, "required" => Required }
words! { TLS_VERSION: VersionMin, "1.2|1.3", "1.2" => Tls12, "1.3" => Tls13 }
words! { LOG_FORMAT: LogFormat, "text|json", "text" => Text, "json" => Json }
words! {
    LOG_LEVEL: LogLevel, "off|error|warn|info|debug|trace",
    "off" => Off, "error" => Error, "warn" => Warn, "info" => Info, "debug" => Debug, "trace" => Trace
}

fn parse_or_off<T>(text: &str, parse: fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    match text {
        OFF => Ok(None),
        text => parse(text).map(Some),
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    // Names are not looked up: which of several addresses would the check for loopback have looked
    // at?
    let numbers = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numbers.parse().map_err(|_| {
        format!("{text:?} is not an address and a port, write it like 127.0.0.1:7400 or [::1]:7400")
    })
}

fn parse_path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("the path is empty".to_owned()),
        text => Ok(PathBuf::from(text)),
    }
}

/// Units and how many milliseconds they have, largest first.
const TIME_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Units and how many bytes they have, largest first.
const SIZE_UNITS: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Reads a time like `500ms`, `1.5s`, `2m`, `1h` or `1d`, down to the millisecond. The error says
/// what would be right.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let time_ms = match text {
        // The one time that needs no unit.
        "0" => Some(0),
        text => parse_with_unit(text, &TIME_UNITS),
    };
    time_ms.map(Duration::from_millis).ok_or_else(|| {
        format!("{text:?} is not a time, write a number and a unit like 500ms, 30s, 2m, 1h or 1d")
    })
}

/// Reads a size like `65536`, `64KiB`, `1.5MiB` or `4GiB`. The error says what would be right.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    digits
        .parse()
        .ok()
        .or_else(|| parse_with_unit(text, &SIZE_UNITS))
        .ok_or_else(|| {
            format!("{text:?} is not a size, write a number and a unit like 64KiB, 16MiB or 4GiB")
        })
}

/// `None` for anything but digits, perhaps with a point among them, and a unit; and for a part of
/// the smallest unit.
fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let number_bytes = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(number_bytes);
    let &(_, unit_size) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // Nine digits are more than a millisecond needs of a day, and 10^9 times any unit stays far
    // below 2^128.
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let part = fraction.parse::<u128>().ok()? * u128::from(unit_size);
    if !part.is_multiple_of(scale) {
        return None;
    }
    let whole = u128::from(whole.parse::<u64>().ok()?) * u128::from(unit_size);
    u64::try_from(whole + part / scale).ok()
}

/// Writes a time as [`parse_time`] reads it: in the largest unit that leaves no rest.
pub fn show_time(time: Duration) -> String {
    show_with_unit(time.as_millis() as u64, &TIME_UNITS)
}

fn show_size(bytes: u64) -> String {
    show_with_unit(bytes, &SIZE_UNITS)
}

fn show_with_unit(amount: u64, units: &[(&str, u64)]) -> String {
    let (name, unit_size) = units
        .iter()
        .find(|(_, unit_size)| amount >= *unit_size && amount.is_multiple_of(*unit_size))
        .unwrap_or(&units[units.len() - 1]);
    format!("{}{name}", amount / unit_size)
}
