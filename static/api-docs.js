// Draws the OpenAPI document. Keys that are typed in stay in this tab and are gone with it.
const target = document.getElementById("api");
window.SwaggerUIBundle({
  domNode: target,
  url: target.dataset.document,
  deepLinking: true,
  persistAuthorization: false,
  validatorUrl: null,
});
