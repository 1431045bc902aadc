//! The handshake phase: fixed newstyle negotiation.
//!
//! Options are read to the byte, without buffering. Plain text that a client sends ahead of STARTTLS is
//! therefore never taken for data inside TLS.

use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use device::Device;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::audit::Refused;
use crate::audit::refusal::RefusalReason;
use crate::connection::entry::Entry;
use crate::connection::front_end::{AREAS_UNDER_WAY, Carrier, FrontEnd, FuseFrontEnd, SHARES_MAX};
use crate::connection::ublk_queue::{QueueNumber, UblkFrontEnd};
use crate::error::ConnectionError;
use crate::exports::Exports;
use crate::exports::export::{Chosen, Offered};
use crate::exports::sessions::Client;
use crate::fence::BridgeArrival;
use crate::fence::attachment::{FLAGS, OPENING_BYTES_MAX, RETURNS, UNCACHED};
use crate::limits::admission::Admission;
use crate::limits::config::TlsPolicy;
use crate::peers::peer::Peer;
use crate::trust::access::Right;
use crate::wire::operation::Session;
use crate::wire::option::{ClientOption, InfoQuery, MetaContextQuery, OPTION_HEADER_BYTES, OptionHeader};
use crate::wire::option_reply as reply;
use crate::wire::protocol::*;
use crate::wire::reply::ReplyStyle;

/// Longest data of an option that is parsed, in bytes: any export name with thousands of information
/// requests.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Longest data of an option that is skipped, in bytes; more closes the connection.
const SKIPPED_BYTES_MAX: u32 = 1 << 20;
/// Most options in a handshake.
const OPTIONS_MAX: u32 = 1024;

/// State of a connection before transmission. Discarded when TLS starts.
pub(crate) struct Handshake<'a, D> {
    exports: &'a Exports<D>,
    tls: &'a TlsPolicy,
    admission: &'a mut Admission,
    client: &'a Client,
    channel: Channel,
    padding: Padding,
    replies: ReplyStyle,
    /// Where requests come from, if not from the stream.
    front_end: Option<FrontEnd>,
    /// How it arrived, if the client is the bridge of an attached drive.
    bridge: Option<BridgeArrival>,
    /// It sends no flushes.
    is_uncached: bool,
    /// The opening of the device that the bridge expects; empty: any.
    opening: String,
    /// A refusal was recorded: later ones of the same connection are not.
    refused: bool,
    /// Export that `base:allocation` was chosen for. The reference is weak, so a client that stays in its
    /// handshake does not keep a removed export alive.
    context_export: Option<Weak<Offered<D>>>,
}

/// Result of a negotiation.
pub(crate) enum Negotiated<D> {
    /// Serve an export, after the reply to the client.
    Transmission(Entry<D>),
    /// Continue inside TLS.
    StartTls,
    /// The client ended the negotiation or hung up.
    Over,
}

/// Consequence of an option.
enum Next<D> {
    /// Another option.
    Continue,
    /// The negotiation ends once the replies are sent.
    End(Negotiated<D>),
    /// The negotiation ends with this session. The replies are sent when it begins.
    Enter(Chosen<D>, Session),
}

fn broken(reason: &str) -> ConnectionError {
    ConnectionError::Handshake(reason.to_owned())
}

/// Whether the answer to EXPORT_NAME ends with 124 zeros (`NBD_FLAG_C_NO_ZEROES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    /// The client expects them.
    Zeroes,
    /// The client does not.
    Omitted,
}

/// Channel that carries the options of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// The stream itself.
    Plain,
    /// TLS over the stream.
    Tls,
}

/// Greets the client. Returns the padding that it expects.
///
/// # Errors
/// If the client does not speak fixed newstyle, or the stream fails.
pub(crate) async fn greet<S>(stream: &mut S) -> Result<Padding, ConnectionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut greeting = [0; 18];
    greeting[0..8].copy_from_slice(&INIT_MAGIC.to_be_bytes());
    greeting[8..16].copy_from_slice(&OPTS_MAGIC.to_be_bytes());
    greeting[16..18].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    stream.write_all(&greeting).await?;
    stream.flush().await?;
    let flags = stream.read_u32().await?;
    if flags & !(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES) != 0 {
        return Err(ConnectionError::Handshake(format!("unknown client flags {flags:#x}")));
    }
    if flags & FLAG_C_FIXED_NEWSTYLE == 0 {
        return Err(broken("the client does not speak fixed newstyle"));
    }
    Ok(match flags & FLAG_C_NO_ZEROES {
        0 => Padding::Zeroes,
        _ => Padding::Omitted,
    })
}

impl<'a, D: Device> Handshake<'a, D> {
    pub(crate) fn new(
        exports: &'a Exports<D>,
        tls: &'a TlsPolicy,
        admission: &'a mut Admission,
        client: &'a Client,
        padding: Padding,
        channel: Channel,
    ) -> Self {
        Self {
            exports,
            tls,
            admission,
            client,
            channel,
            padding,
            replies: ReplyStyle::Simple,
            front_end: None,
            bridge: None,
            is_uncached: false,
            opening: String::new(),
            refused: false,
            context_export: None,
        }
    }

    /// Replies to options until one ends the negotiation. `carrier`: how the stream carries descriptors.
    pub(crate) async fn run<S>(
        &mut self,
        stream: &mut S,
        carrier: Option<Carrier<S>>,
    ) -> Result<Negotiated<D>, ConnectionError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut data = Vec::new();
        let mut out = Vec::new();
        for _ in 0..OPTIONS_MAX {
            let mut header = [0; OPTION_HEADER_BYTES];
            // Many clients hang up after listing exports.
            match stream.read(&mut header[..1]).await? {
                0 => return Ok(Negotiated::Over),
                _ => stream.read_exact(&mut header[1..]).await?,
            };
            let header = OptionHeader::decode(&header).ok_or_else(|| broken("an option has a bad magic"))?;
            data.clear();
            out.clear();
            let next = if header.length > OPTION_BYTES_MAX {
                self.skip(stream, header, &mut out).await?;
                Next::Continue
            } else {
                data.resize(header.length as usize, 0);
                stream.read_exact(&mut data).await?;
                match (header.option, carrier) {
                    (OPT_FUSE, Some(carrier)) if data.is_empty() && self.is_trusted() => {
                        let made = |descriptors| FuseFrontEnd::new(descriptors).map(FrontEnd::Fuse);
                        self.take_descriptors(stream, OPT_FUSE, carrier, made, &mut out).await?;
                        Next::Continue
                    }
                    (OPT_UBLK, Some(carrier))
                        if self.is_trusted()
                            && let Some(queue) = QueueNumber::decode(&data) =>
                    {
                        let made = |descriptors| UblkFrontEnd::new(queue, descriptors).map(FrontEnd::Ublk);
                        self.take_descriptors(stream, OPT_UBLK, carrier, made, &mut out).await?;
                        Next::Continue
                    }
                    (OPT_LEFT, Some(carrier)) if self.is_trusted() && self.bridge.is_some() => {
                        self.send_left(stream, &data, carrier, &mut out).await?;
                        Next::Continue
                    }
                    (OPT_ATTACH, _) if self.is_trusted() && self.is_bridge(&data) => {
                        if let Some(prepare) = &self.exports.resources.config.on_bridge {
                            prepare();
                        }
                        reply::push_reply(&mut out, OPT_ATTACH, REP_ACK, &[]);
                        Next::Continue
                    }
                    _ => self.answer(header.option, &data, &mut out)?,
                }
            };
            let sent = async {
                stream.write_all(&out).await?;
                stream.flush().await
            };
            match next {
                Next::Enter(export, session) => {
                    // Done before the client gets the reply, because it relies on its place from then on.
                    self.admission.established()?;
                    let front_end = self.front_end.take();
                    let (bridge, option) = (self.bridge, header.option);
                    let entry = Entry { export, session, front_end, bridge, option, answer: out };
                    return Ok(Negotiated::Transmission(entry));
                }
                Next::End(end) => {
                    sent.await?;
                    return Ok(end);
                }
                Next::Continue => sent.await?,
            }
        }
        Err(broken("too many options"))
    }

    async fn skip<S>(
        &self,
        stream: &mut S,
        header: OptionHeader,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError>
    where
        S: AsyncRead + Unpin,
    {
        if header.length > SKIPPED_BYTES_MAX || header.option == OPT_EXPORT_NAME {
            return Err(broken("an option is too long"));
        }
        let mut rest = stream.take(u64::from(header.length));
        let skipped = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
        if skipped < u64::from(header.length) {
            return Err(broken("the client closed the connection in the middle of an option"));
        }
        push_error(out, header.option, REP_ERR_TOO_BIG, "option data is too long");
        Ok(())
    }

    /// Returns whether the client is one of this user or root, whose stream is not encrypted.
    fn is_trusted(&self) -> bool {
        /// Stands for all users that are unknown in a namespace.
        const NOBODY: u32 = 65534;
        let own = rustix::process::geteuid().as_raw();
        let is_own = |user: u32| user == 0 || user == own && user != NOBODY;
        matches!(self.client.peer, Peer::User(user) if is_own(user)) && matches!(self.tls, TlsPolicy::Off)
    }

    /// Notes how the bridge of a device arrives, and which opening it expects. Returns `false` if the data of
    /// the option is malformed.
    fn is_bridge(&mut self, data: &[u8]) -> bool {
        let Some((flags, opening)) = data.split_first().filter(|(flags, _)| **flags & !FLAGS == 0) else {
            return false;
        };
        let returns = flags & RETURNS != 0;
        match std::str::from_utf8(opening) {
            Ok(opening) if opening.len() <= OPENING_BYTES_MAX => {
                self.bridge = Some(if returns { BridgeArrival::Returning } else { BridgeArrival::New });
                self.is_uncached = flags & UNCACHED != 0;
                self.opening = opening.to_owned();
                true
            }
            _ => false,
        }
    }

    /// Receives the descriptors of the client's device.
    async fn take_descriptors<S>(
        &mut self,
        stream: &mut S,
        option: u32,
        carrier: Carrier<S>,
        make: impl FnOnce(Vec<OwnedFd>) -> io::Result<FrontEnd>,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        reply::push_reply(out, option, REP_ACK, &[]);
        stream.write_all(out).await?;
        stream.flush().await?;
        out.clear();
        let descriptors = poll_fn(|cx| (carrier.receive)(stream, cx)).await?;
        match make(descriptors) {
            Ok(front_end) => {
                self.front_end = Some(front_end);
                reply::push_reply(out, option, REP_ACK, &[]);
            }
            Err(error) => push_error(out, option, REP_ERR_INVALID, &error.to_string()),
        }
        Ok(())
    }

    /// Sends what a keeper that was killed has left of an export's FUSE file.
    async fn send_left<S>(
        &mut self,
        stream: &mut S,
        name: &[u8],
        carrier: Carrier<S>,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let found = std::str::from_utf8(name).ok().and_then(|name| self.find(name));
        let Some((export, _)) = found else {
            push_error(out, OPT_LEFT, REP_ERR_UNKNOWN, "there is no such export");
            return Ok(());
        };
        let Some(mut left) = export.fence().areas().left() else {
            push_error(out, OPT_LEFT, REP_ERR_POLICY, AREAS_UNDER_WAY);
            return Ok(());
        };
        left.truncate(SHARES_MAX as usize);
        reply::push_reply(out, OPT_LEFT, REP_ACK, &[&(left.len() as u32).to_be_bytes()]);
        stream.write_all(out).await?;
        stream.flush().await?;
        out.clear();
        for share in &left {
            poll_fn(|cx| (carrier.send)(stream, share, cx)).await?;
        }
        Ok(())
    }

    fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<Next<D>, ConnectionError> {
        let tls_required = matches!(self.tls, TlsPolicy::Required(_)) && self.channel == Channel::Plain;
        if tls_required && !matches!(option, OPT_STARTTLS | OPT_ABORT) {
            self.record(RefusalReason::NoTls, None, &"it did not use TLS");
            if option == OPT_EXPORT_NAME {
                return Err(ConnectionError::NoTls);
            }
            push_error(out, option, REP_ERR_TLS_REQD, "use STARTTLS first");
            return Ok(Next::Continue);
        }
        let decoded = match ClientOption::decode(option, data) {
            Ok(decoded) => decoded,
            Err(error) if option == OPT_EXPORT_NAME => return Err(broken(&error.to_string())),
            Err(error) => {
                if option == OPT_SET_META_CONTEXT {
                    self.context_export = None;
                }
                push_error(out, option, error.reply_type(), &error.to_string());
                return Ok(Next::Continue);
            }
        };
        match decoded {
            ClientOption::ExportName(_) if self.replies == ReplyStyle::Extended => {
                return Err(broken("EXPORT_NAME after extended headers were agreed on"));
            }
            ClientOption::ExportName(name) => {
                let (export, right) = self.find(&name).ok_or(ConnectionError::NoExport)?;
                let session = self.session(&export, right, false);
                let geometry = export.device.geometry();
                out.extend_from_slice(&reply::export_name_answer(
                    &geometry,
                    session,
                    self.padding == Padding::Zeroes,
                ));
                let chosen = self.choose(export, right).ok_or(ConnectionError::NoExport)?;
                return Ok(Next::Enter(chosen, session));
            }
            ClientOption::Abort => {
                reply::push_reply(out, option, REP_ACK, &[]);
                return Ok(Next::End(Negotiated::Over));
            }
            ClientOption::StartTls => return Ok(self.start_tls(out)),
            ClientOption::Go(query) => {
                if let Some((export, right)) = self.info(option, &query, out) {
                    // Asking for them at this moment is the promise to keep to them.
                    let session = self.session(&export, right, query.infos.contains(&INFO_BLOCK_SIZE));
                    let chosen = self.choose(export, right).ok_or(ConnectionError::NoExport)?;
                    return Ok(Next::Enter(chosen, session));
                }
            }
            ClientOption::Info(query) => {
                self.info(option, &query, out);
            }
            ClientOption::List => {
                let exports = self.exports.offered();
                for export in exports.iter().filter(|export| export.right_of(self.client).is_some()) {
                    reply::push_server(out, &export.name, &export.description);
                }
                reply::push_reply(out, option, REP_ACK, &[]);
            }
            ClientOption::StructuredReply => match self.replies {
                ReplyStyle::Simple => {
                    self.replies = ReplyStyle::Structured;
                    reply::push_reply(out, option, REP_ACK, &[]);
                }
                ReplyStyle::Structured => {
                    push_error(out, option, REP_ERR_INVALID, "structured replies are already agreed on");
                }
                ReplyStyle::Extended => {
                    push_error(out, option, REP_ERR_EXT_HEADER_REQD, "extended headers are agreed on");
                }
            },
            ClientOption::ExtendedHeaders if self.replies == ReplyStyle::Extended => {
                push_error(out, option, REP_ERR_INVALID, "extended headers are already agreed on");
            }
            ClientOption::ExtendedHeaders => {
                self.replies = ReplyStyle::Extended;
                reply::push_reply(out, option, REP_ACK, &[]);
            }
            ClientOption::ListMetaContext(query) => self.list_contexts(&query, out),
            ClientOption::SetMetaContext(query) => self.set_contexts(&query, out),
            ClientOption::Unknown(_) => push_error(out, option, REP_ERR_UNSUP, "unknown option"),
        }
        Ok(Next::Continue)
    }

    /// Finds an export that the client may use, and what it may do. Records it if there is none.
    fn find(&mut self, name: &str) -> Option<(Arc<Offered<D>>, Right)> {
        let Some(export) = self.exports.find(name) else {
            self.record(RefusalReason::NoExport, Some(name), &format_args!("there is no export {name:?}"));
            return None;
        };
        // The name is another device's by now. The bridge looks for it again.
        if !self.opening.is_empty() && self.opening != export.sharing.opening {
            return None;
        }
        let Some(right) = export.right_of(self.client) else {
            self.record_not_listed(&export.name);
            return None;
        };
        Some((export, right))
    }

    /// Begins a session. Returns `None` if the client lost its right: rights may have changed since they were
    /// checked.
    fn choose(&mut self, export: Arc<Offered<D>>, right: Right) -> Option<Chosen<D>> {
        let chosen = Chosen::new(export, self.client, right)?;
        match self.exports.tls() {
            // The session has begun: a later change of TLS finds it.
            TlsPolicy::Required(tls) if !tls.admits(self.client.identity.as_deref()) => None,
            _ => Some(chosen),
        }
    }

    fn record_not_listed(&mut self, export: &str) {
        let client = match &self.client.identity {
            Some(identity) => identity.to_string(),
            None => "a client without certificate".to_owned(),
        };
        self.record(RefusalReason::NotListed, Some(export), &format_args!("{client} may not use {export:?}"));
    }

    /// Records the first refusal of a connection.
    fn record(&mut self, reason: RefusalReason, export: Option<&str>, detail: &dyn Display) {
        if !std::mem::replace(&mut self.refused, true) {
            let Client { peer, identity, .. } = self.client;
            let client = Refused { peer: *peer, identity: identity.as_deref(), export };
            self.exports.resources.audit.refused(reason, client, detail);
        }
    }

    fn start_tls(&self, out: &mut Vec<u8>) -> Next<D> {
        if self.channel == Channel::Tls {
            push_error(out, OPT_STARTTLS, REP_ERR_INVALID, "TLS is already on");
        } else if matches!(self.tls, TlsPolicy::Off) {
            push_error(out, OPT_STARTTLS, REP_ERR_UNSUP, "the server has no TLS");
        } else {
            reply::push_reply(out, OPT_STARTTLS, REP_ACK, &[]);
            return Next::End(Negotiated::StartTls);
        }
        Next::Continue
    }

    /// Returns the session with `export` as negotiated. Contexts count only for the export that they were
    /// chosen for.
    fn session(&self, export: &Arc<Offered<D>>, right: Right, block_sizes: bool) -> Session {
        let chosen =
            self.context_export.as_ref().is_some_and(|chosen| chosen.as_ptr() == Arc::as_ptr(export));
        let is_attached_elsewhere = self.is_attached_elsewhere(export);
        Session {
            replies: self.replies,
            base_allocation: chosen,
            // For the whole session, as the client was told.
            read_only: right == Right::Read || export.device.geometry().read_only || is_attached_elsewhere,
            is_attached_elsewhere,
            is_bridge: self.bridge.is_some(),
            is_uncached: self.is_uncached,
            block_sizes,
        }
    }

    /// Returns whether the client may not write because another one, the bridge, has the device attached.
    fn is_attached_elsewhere(&self, export: &Offered<D>) -> bool {
        let is_exclusive = self.bridge.is_none() && !export.sharing.shared_writes;
        is_exclusive && (export.fence().is_attached() || export.sharing.is_marked())
    }

    fn info(
        &mut self,
        option: u32,
        query: &InfoQuery,
        out: &mut Vec<u8>,
    ) -> Option<(Arc<Offered<D>>, Right)> {
        let Some((export, right)) = self.find(&query.export) else {
            push_error(out, option, REP_ERR_UNKNOWN, "there is no such export");
            return None;
        };
        let geometry = export.device.geometry();
        reply::push_info_export(out, option, &geometry, self.session(&export, right, false));
        // Not sent without being requested: clients would refuse what is legal for those that did not ask.
        if query.infos.contains(&INFO_BLOCK_SIZE) {
            reply::push_info_block_size(out, option, &geometry);
        }
        for (info, text) in [(INFO_NAME, &export.name), (INFO_DESCRIPTION, &export.description)] {
            if query.infos.contains(&info) {
                reply::push_info_text(out, option, info, text);
            }
        }
        reply::push_reply(out, option, REP_ACK, &[]);
        Some((export, right))
    }

    fn list_contexts(&mut self, query: &MetaContextQuery, out: &mut Vec<u8>) {
        let option = OPT_LIST_META_CONTEXT;
        if self.find(&query.export).is_none() {
            return push_error(out, option, REP_ERR_UNKNOWN, "there is no such export");
        }
        let matches = |name: &String| name == CONTEXT_BASE_ALLOCATION || name == "base:";
        if query.queries.is_empty() || query.queries.iter().any(matches) {
            reply::push_meta_context(out, option, CONTEXT_ID_BASE_ALLOCATION, CONTEXT_BASE_ALLOCATION);
        }
        reply::push_reply(out, option, REP_ACK, &[]);
    }

    fn set_contexts(&mut self, query: &MetaContextQuery, out: &mut Vec<u8>) {
        let option = OPT_SET_META_CONTEXT;
        self.context_export = None;
        if self.replies == ReplyStyle::Simple {
            return push_error(
                out,
                option,
                REP_ERR_INVALID,
                "agree on structured replies or extended headers first",
            );
        }
        let Some((export, _)) = self.find(&query.export) else {
            return push_error(out, option, REP_ERR_UNKNOWN, "there is no such export");
        };
        if query.queries.iter().any(|name| name == CONTEXT_BASE_ALLOCATION) {
            self.context_export = Some(Arc::downgrade(&export));
            reply::push_meta_context(out, option, CONTEXT_ID_BASE_ALLOCATION, CONTEXT_BASE_ALLOCATION);
        }
        reply::push_reply(out, option, REP_ACK, &[]);
    }
}

fn push_error(out: &mut Vec<u8>, option: u32, reply_type: u32, message: &str) {
    reply::push_reply(out, option, reply_type, &[message.as_bytes()]);
}
