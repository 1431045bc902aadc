pub(crate) mod covered;
pub(crate) mod status;
pub(crate) mod survey;
