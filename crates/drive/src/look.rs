pub(crate) mod status;
pub(crate) mod survey;
