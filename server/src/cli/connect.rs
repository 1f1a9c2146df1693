//! Reaching a server: the flags for it, and the sentence for each failure.

use super::failure::{Code, Failure};
use super::text::time;
use super::tls::TlsArgs;
use clap::Args;
use fencepost::{Client, ConnectError, Error};
use protocol::{ClientName, ErrorCode};
use server::config::parse_time;
use std::path::PathBuf;
use std::time::Duration;

/// The client's own sentence says more than that the time is up, and comes at that moment.
const CONNECT_SLACK: Duration = Duration::from_millis(250);

/// Where the server is, and the token to show it.
#[derive(Args)]
pub(super) struct ServerArgs {
    /// The server's address, as HOST:PORT; of a cluster several, with commas between them
    #[arg(
        long,
        value_name = "ADDR",
        env = "FENCEPOST_SERVER",
        hide_env_values = true,
        default_value = "127.0.0.1:7400",
        help_heading = "Server"
    )]
    pub(super) server: String,
    /// A file with the token to show, on its first line that is no comment. The server's own file
    /// will do
    #[arg(
        long,
        value_name = "FILE",
        env = "FENCEPOST_TOKEN_FILE",
        hide_env_values = true,
        help_heading = "Server"
    )]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
    /// How long the server may take to answer
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5s", help_heading = "Server")]
    pub(super) timeout: Duration,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl ServerArgs {
    /// Connects, asks, says goodbye.
    pub(super) fn ask<T>(
        &self,
        ask: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        run_async(async {
            let client = self.connect("fencepost", None, self.timeout).await?;
            let answer = ask(&client).await;
            // The answer is what counts. Without a goodbye the session ends by itself.
            let _ = client.close().await;
            answer.map_err(|error| self.failure_of(error))
        })
    }

    /// Connects under this name, `within` this time however many addresses there are. The session
    /// outlives the connection by `session_ttl`.
    pub(super) async fn connect(
        &self,
        name: &str,
        session_ttl: Option<Duration>,
        within: Duration,
    ) -> Result<Client, Failure> {
        let mut builder = Client::builder()
            .address(&self.server)
            .name(ClientName::clipped(name).as_str())
            .connections(1)
            // Where the caller traces what it does, the server's audit log names the trace.
            .trace_context(|| std::env::var("TRACEPARENT").ok())
            .connect_timeout(self.timeout)
            .request_timeout(self.timeout);
        if let Some(path) = &self.token_file {
            builder = builder.token_file(path).map_err(Failure::usage)?;
        }
        if let Some(tls) = self.tls.tls()? {
            builder = builder.tls(tls);
        }
        if let Some(session_ttl) = session_ttl {
            builder = builder.session_ttl(session_ttl);
        }
        match tokio::time::timeout(within + CONNECT_SLACK, builder.connect()).await {
            Ok(connected) => connected.map_err(|error| self.failure_to_connect(error)),
            Err(_elapsed) => Err(Failure::new(
                Code::Unreachable,
                format_args!(
                    "no server at {} took this client within {}: each is slow, cannot be reached, or does not lead. Are the \
                     servers running? If they are only slow, allow more time",
                    self.server,
                    time(within)
                ),
            )),
        }
    }

    fn failure_to_connect(&self, error: ConnectError) -> Failure {
        let server = &self.server;
        match error {
            ConnectError::Unreachable {
                address, message, ..
            } => Failure::new(
                Code::Unreachable,
                format_args!(
                    "cannot reach {address}: {message}. Is the server running? Start one with `fencepost`, \
                     or say where it is with --server"
                ),
            ),
            ConnectError::TimedOut { address, after } => Failure::new(
                Code::Unreachable,
                format_args!(
                    "cannot reach {address}: no answer within {}. Is this the right address? \
                     If it is only slow, allow more with --timeout",
                    time(after)
                ),
            ),
            ConnectError::NotFencepost { address, .. } => Failure::new(
                Code::Unreachable,
                format_args!(
                    "what answers at {address} is no Fencepost server. Is the port right? Locks are served \
                     on 7400 unless the server was told otherwise, and 7401 is HTTP"
                ),
            ),
            ConnectError::Refused {
                code: ErrorCode::UNAUTHENTICATED,
                ..
            } => Failure::new(
                Code::Refused,
                match self.token_file {
                    Some(_) => format!(
                        "{server} does not accept this token. Is it one of those in the server's --auth-token-file?"
                    ),
                    None => format!(
                        "{server} wants a token. Give the file that has it with --token-file or FENCEPOST_TOKEN_FILE"
                    ),
                },
            ),
            ConnectError::Handshake { address, message } => Failure::new(
                Code::Refused,
                format_args!(
                    "the TLS handshake with {address} failed: {message}. Check --tls-ca, --tls-cert and --tls-server-name"
                ),
            ),
            // It names what was asked and what came of it.
            error @ (ConnectError::NotLeader { .. } | ConnectError::NoneOf { .. }) => Failure::new(
                Code::Unreachable,
                format_args!("{error}. Say where all nodes are with --server HOST:PORT,HOST:PORT"),
            ),
            ConnectError::Refused { code, message, .. } => Failure::new(
                Code::Unreachable,
                format_args!("{server} refused the connection ({code}): {message}"),
            ),
            // The rest are settings of the client, which come from this program's flags.
            error => Failure::usage(error),
        }
    }

    /// The sentence for a request that failed.
    pub(super) fn failure_of(&self, error: Error) -> Failure {
        let server = &self.server;
        let code = match &error {
            Error::Disconnected { why: Some(why) } => {
                return self.failure_to_connect(why.clone());
            }
            Error::Disconnected { why: None } => {
                return Failure::new(
                    Code::Unreachable,
                    format_args!("the connection to {server} broke. Is the server still running?"),
                );
            }
            Error::NoAnswer { after } => {
                return Failure::new(
                    Code::Unreachable,
                    format_args!(
                        "{server} took the request but did not answer within {}, so whether it was done is not \
                         known. Allow more with --timeout",
                        time(*after)
                    ),
                );
            }
            Error::Refused {
                code: ErrorCode::FORBIDDEN | ErrorCode::UNAUTHENTICATED,
                ..
            } => Code::Refused,
            Error::Invalid(_) | Error::OutOfRange { .. } => Code::Usage,
            Error::Busy { .. } | Error::Unavailable { .. } => Code::No,
            _ => Code::Internal,
        };
        Failure::new(code, error)
    }
}

/// Runs the async work of one command.
pub(super) fn run_async<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(Failure::new(
            Code::Internal,
            format_args!("the system refused a runtime: {error}"),
        )),
    }
}
