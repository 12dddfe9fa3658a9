// Cells of the table; React escapes every text.
window.dashAgGridComponentFunctions = {
  RunLink: ({ data, value }) =>
    React.createElement("a", { href: data.href, title: value }, data.text.run),
  Status: ({ value }) =>
    React.createElement("span", { className: "chip " + value.split(" ")[0] }, value),
};
