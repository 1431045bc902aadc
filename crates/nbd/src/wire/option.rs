//! The options of the handshake phase, as a client sends them.
//!
//! ```text
//!  | IHAVEOPT 8 | option 4 | length 4 | `length` bytes |
//! ```

use crate::wire::fields;
use crate::wire::protocol::*;

/// Bytes of an option header.
pub const OPTION_HEADER_BYTES: usize = 16;

/// The header of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// `OPT_*`.
    pub option: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionHeader {
    /// Decodes a header. `None` if it does not begin with `IHAVEOPT`.
    pub fn decode(bytes: &[u8; OPTION_HEADER_BYTES]) -> Option<Self> {
        let field = &mut bytes.as_slice();
        let magic = fields::take_u64(field)?;
        let header = Self { option: fields::take_u32(field)?, length: fields::take_u32(field)? };
        (magic == OPTS_MAGIC).then_some(header)
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; OPTION_HEADER_BYTES] {
        let mut bytes = [0; OPTION_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&OPTS_MAGIC.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// The data of `OPT_INFO` and `OPT_GO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoQuery {
    /// Name of the export.
    pub export: String,
    /// `INFO_*` that the client asks for.
    pub infos: Vec<u16>,
}

/// The data of `OPT_LIST_META_CONTEXT` and `OPT_SET_META_CONTEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaContextQuery {
    /// Name of the export.
    pub export: String,
    /// Contexts asked for. To list, also namespaces.
    pub queries: Vec<String>,
}

/// An option with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOption {
    /// `OPT_EXPORT_NAME` with the name.
    ExportName(String),
    /// `OPT_ABORT`.
    Abort,
    /// `OPT_LIST`.
    List,
    /// `OPT_STARTTLS`.
    StartTls,
    /// `OPT_INFO`.
    Info(InfoQuery),
    /// `OPT_GO`.
    Go(InfoQuery),
    /// `OPT_STRUCTURED_REPLY`.
    StructuredReply,
    /// `OPT_EXTENDED_HEADERS`.
    ExtendedHeaders,
    /// `OPT_LIST_META_CONTEXT`.
    ListMetaContext(MetaContextQuery),
    /// `OPT_SET_META_CONTEXT`.
    SetMetaContext(MetaContextQuery),
    /// Any other number.
    Unknown(u32),
}

/// Error in the data of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// Violates the specification.
    #[error("{0}")]
    Invalid(&'static str),
    /// A string longer than [`MAX_STRING_BYTES`].
    #[error("a name is longer than 4096 bytes")]
    TooBig,
}

impl OptionError {
    /// Reply type that reports this error.
    pub fn reply_type(&self) -> u32 {
        match self {
            Self::Invalid(_) => REP_ERR_INVALID,
            Self::TooBig => REP_ERR_TOO_BIG,
        }
    }
}

const SHORT: OptionError = OptionError::Invalid("option data is too short");

fn string(bytes: &[u8]) -> Result<String, OptionError> {
    if bytes.len() > MAX_STRING_BYTES {
        return Err(OptionError::TooBig);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        Ok(_) => Err(OptionError::Invalid("a name contains a zero byte")),
        Err(_) => Err(OptionError::Invalid("a name is not UTF-8")),
    }
}

fn counted_string(data: &mut &[u8]) -> Result<String, OptionError> {
    let len = fields::take_u32(data).ok_or(SHORT)? as usize;
    string(fields::take_slice(data, len).ok_or(SHORT)?)
}

fn nothing_left(data: &[u8]) -> Result<(), OptionError> {
    if data.is_empty() { Ok(()) } else { Err(OptionError::Invalid("option data is too long")) }
}

fn info_query(data: &mut &[u8]) -> Result<InfoQuery, OptionError> {
    let export = counted_string(data)?;
    let count = fields::take_u16(data).ok_or(SHORT)?;
    let infos = (0..count).map(|_| fields::take_u16(data).ok_or(SHORT)).collect::<Result<_, _>>()?;
    Ok(InfoQuery { export, infos })
}

fn meta_context_query(data: &mut &[u8]) -> Result<MetaContextQuery, OptionError> {
    let export = counted_string(data)?;
    let count = fields::take_u32(data).ok_or(SHORT)? as usize;
    // Each query takes at least four bytes. A wrong count therefore cannot make the server reserve memory.
    if count > data.len() / 4 {
        return Err(SHORT);
    }
    let queries = (0..count).map(|_| counted_string(data)).collect::<Result<_, _>>()?;
    Ok(MetaContextQuery { export, queries })
}

impl ClientOption {
    /// Decodes the data of option number `option`.
    ///
    /// # Errors
    /// [`OptionError`] if the data does not have the form that the option requires. Unknown options are not
    /// an error.
    pub fn decode(option: u32, data: &[u8]) -> Result<Self, OptionError> {
        let rest = &mut &*data;
        let decoded = match option {
            OPT_EXPORT_NAME => return Ok(Self::ExportName(string(data)?)),
            OPT_ABORT => return Ok(Self::Abort),
            OPT_LIST => Self::List,
            OPT_STARTTLS => Self::StartTls,
            OPT_INFO => Self::Info(info_query(rest)?),
            OPT_GO => Self::Go(info_query(rest)?),
            OPT_STRUCTURED_REPLY => Self::StructuredReply,
            OPT_EXTENDED_HEADERS => Self::ExtendedHeaders,
            OPT_LIST_META_CONTEXT => Self::ListMetaContext(meta_context_query(rest)?),
            OPT_SET_META_CONTEXT => Self::SetMetaContext(meta_context_query(rest)?),
            other => return Ok(Self::Unknown(other)),
        };
        nothing_left(rest)?;
        Ok(decoded)
    }

    /// Number of the option.
    pub fn number(&self) -> u32 {
        match self {
            Self::ExportName(_) => OPT_EXPORT_NAME,
            Self::Abort => OPT_ABORT,
            Self::List => OPT_LIST,
            Self::StartTls => OPT_STARTTLS,
            Self::Info(_) => OPT_INFO,
            Self::Go(_) => OPT_GO,
            Self::StructuredReply => OPT_STRUCTURED_REPLY,
            Self::ExtendedHeaders => OPT_EXTENDED_HEADERS,
            Self::ListMetaContext(_) => OPT_LIST_META_CONTEXT,
            Self::SetMetaContext(_) => OPT_SET_META_CONTEXT,
            Self::Unknown(number) => *number,
        }
    }

    /// Encodes the option with its header, as a client sends it.
    pub fn encode(&self) -> Vec<u8> {
        let mut data = Vec::new();
        match self {
            Self::ExportName(name) => data.extend_from_slice(name.as_bytes()),
            Self::Info(query) | Self::Go(query) => {
                push_string(&mut data, &query.export);
                data.extend_from_slice(&(query.infos.len() as u16).to_be_bytes());
                query.infos.iter().for_each(|info| data.extend_from_slice(&info.to_be_bytes()));
            }
            Self::ListMetaContext(query) | Self::SetMetaContext(query) => {
                push_string(&mut data, &query.export);
                data.extend_from_slice(&(query.queries.len() as u32).to_be_bytes());
                query.queries.iter().for_each(|name| push_string(&mut data, name));
            }
            _ => {}
        }
        let header = OptionHeader { option: self.number(), length: data.len() as u32 };
        [header.encode().as_slice(), &data].concat()
    }
}

fn push_string(data: &mut Vec<u8>, text: &str) {
    data.extend_from_slice(&(text.len() as u32).to_be_bytes());
    data.extend_from_slice(text.as_bytes());
}
