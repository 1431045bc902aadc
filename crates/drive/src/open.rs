pub(crate) mod create;
pub(crate) mod recovery;
pub(crate) mod replay;
pub(crate) mod resize;
pub(crate) mod rewrite;
pub(crate) mod set_codec;
pub(crate) mod slots;
pub(crate) mod wipe;
