//! Records and times as people read them.

use crate::record::Record;
use std::fmt;

/// A record as one line for people.
pub(crate) struct Line<'a>(pub(crate) &'a Record<'a>);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 {
            Record::Started { unix_ms, scope } => {
                write!(f, "started {} writing down {scope}", Utc(unix_ms))
            }
            Record::CleanStop { unix_ms } => write!(f, "clean-stop {}", Utc(unix_ms)),
            Record::Ceiling { shard, fence } => write!(f, "ceiling shard={shard} fence={fence}"),
            Record::Horizon {
                unix_ms,
                lease_ms_max,
            } => {
                write!(f, "horizon {}", Utc(unix_ms))?;
                match lease_ms_max {
                    Some(lease_ms_max) => write!(f, " leases<={lease_ms_max}ms"),
                    None => Ok(()),
                }
            }
            Record::Clock {
                unix_ms,
                wall_unix_ms,
            } => {
                write!(f, "clock {}", Utc(unix_ms))?;
                match wall_unix_ms {
                    Some(wall_unix_ms) => write!(f, " wall={}", Utc(wall_unix_ms)),
                    None => Ok(()),
                }
            }
            Record::SessionOpened {
                session,
                ttl_ms,
                deadline_unix_ms,
                name,
            } => write!(
                f,
                "session-opened {session:#x} ttl={ttl_ms}ms until={} name=\"{}\"",
                Utc(deadline_unix_ms),
                name.escape_ascii()
            ),
            Record::SessionKept {
                session,
                deadline_unix_ms,
            } => write!(
                f,
                "session-kept {session:#x} until={}",
                Utc(deadline_unix_ms)
            ),
            Record::SessionEnded { session } => write!(f, "session-ended {session:#x}"),
            Record::Granted(lease) | Record::GrantedLong(lease) => write!(
                f,
                "{} key=\"{}\" fence={} session={:#x} {}{} count={} since={} until={} note=\"{}\"",
                match self.0 {
                    Record::GrantedLong(_) => "granted-long",
                    _ => "granted",
                },
                lease.key.escape_ascii(),
                lease.fence,
                lease.session,
                lease.mode.name(),
                if lease.is_session_bound {
                    " session-bound"
                } else {
                    ""
                },
                lease.count,
                Utc(lease.granted_unix_ms),
                Utc(lease.until_unix_ms),
                lease.note.escape_ascii()
            ),
            Record::Renewed {
                key,
                fence,
                until_unix_ms,
            } => write!(
                f,
                "renewed key=\"{}\" fence={fence} until={}",
                key.escape_ascii(),
                Utc(until_unix_ms)
            ),
            Record::Released {
                key,
                fence,
                count_left,
            } => write!(
                f,
                "released key=\"{}\" fence={fence} left={count_left}",
                key.escape_ascii()
            ),
            Record::Downgraded { key, fence } => {
                write!(f, "downgraded key=\"{}\" fence={fence}", key.escape_ascii())
            }
            Record::Answered {
                session,
                request,
                fence,
                count,
            } => write!(
                f,
                "answered session={session:#x} request={request} fence={fence} count={count}"
            ),
            Record::TurnsEnded => write!(f, "turns-ended"),
            Record::NodeIs { node, disk } => write!(f, "node-is {node} disk={disk:#x}"),
            Record::Vote {
                group,
                term,
                node,
                is_committed,
            } => write!(
                f,
                "vote group={group} term={term} node={node}{}",
                if is_committed { " committed" } else { "" }
            ),
            Record::EntryBegin {
                group, id, bytes, ..
            } => write!(
                f,
                "entry group={group} index={} term={} node={} bytes={bytes}",
                id.index, id.term, id.node
            ),
            Record::EntryPart { group, part } => {
                write!(f, "entry-part group={group} bytes={}", part.len())
            }
            Record::Truncated { group, from } => write!(f, "truncated group={group} from={from}"),
            Record::Purged { group, id } => {
                write!(f, "purged group={group} up-to={}", id.index)
            }
            Record::ImagePart { group, part } => {
                write!(f, "image-part group={group} bytes={}", part.len())
            }
            Record::SnapshotBegin { unix_ms, scope } => {
                write!(f, "snapshot {} of {scope}", Utc(unix_ms))
            }
            Record::SnapshotShows { log_position } => {
                write!(f, "snapshot-shows log={log_position}")
            }
            Record::SnapshotEnd {
                records, log_end, ..
            } => write!(f, "snapshot-end records={records} log-end={log_end}"),
            Record::Continued { sequence } => write!(f, "continued in segment {sequence}"),
            Record::Synced => write!(f, "synced"),
        }
    }
}

/// A time, in milliseconds since 1970, as people read it.
pub struct Utc(pub u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The end of a lease that has none.
        if self.0 == u64::MAX {
            return f.write_str("never");
        }
        let ms = self.0 % 1000;
        let seconds = self.0 / 1000;
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        // Years begin in March here, so that the day that is sometimes there is the last one of a
        // year. 719468 days lie between the first of March of the year 0 and 1970; 400 years have
        // 146097 days.
        let days = seconds / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = (month_from_march + 2) % 12 + 1;
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
        )
    }
}
